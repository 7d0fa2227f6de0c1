//! Random tables and random operations on them, the same on all ranks, compared with a table in the
//! program's memory.
//!
//! Hazard (wrong result): a combination without a test of its own: memory type, row lengths, gaps
//! and offsets, numbers of rows and their repetition, and the path that moves the rows.

use std::ffi::c_uint;
use std::ptr::{null, null_mut};

use fastrand::Rng;

use crate::api::{Description, Handle};
use crate::environment::Caller;
use crate::rank::{Local, Rank, SUCCESS, Verdict, byte_at, bytes_at, must, want};

/// `WHOLEMEMORY_DT_*`
const INT: c_uint = 5;
const INT64: c_uint = 6;
const INT8: c_uint = 8;

const UNTOUCHED: u8 = 0xa5;
const TABLES: u64 = 8;
/// Bytes that are moved at once, at most.
const MOST: u64 = 1 << 18;

fn of<T: Copy>(random: &mut Rng, all: &[T]) -> T {
    *random.choice(all).expect("the list is not empty")
}

/// A table of bytes, and its expected contents.
struct Drawn {
    kind: (c_uint, c_uint),
    rows: u64,
    columns: u64,
    stride: u64,
    bytes: Vec<u8>,
}

impl Drawn {
    fn new(rank: &Rank, random: &mut Rng, salt: usize) -> Self {
        let kind = of(random, rank.kinds());
        let columns = match random.u32(..3) {
            0 => of(random, &[1, 2, 4, 8, 16, 32, 64, 128, 512, 2048]),
            1 => 4 * (1 + random.u64(..300)),
            _ => 1 + random.u64(..700),
        };
        let stride = columns + of(random, &[0, 0, 1, 4, 16]);
        let most = MOST / stride;
        let rows = of(random, &[1, 7, 300, 5000, 70_000]).min(most).max(1);
        let bytes = bytes_at(0, (rows * stride) as usize, salt);
        Self { kind, rows, columns, stride, bytes }
    }

    fn make(&self, rank: &Rank) -> Verdict<Handle> {
        let shape = Description::matrix(self.rows as i64, self.columns as i64, self.stride as i64, INT8);
        let (mut table, kind) = (null_mut(), self.kind);
        want!(
            SUCCESS,
            rank.wholememory_create_tensor(&mut table, &shape, rank.comm, kind.0, kind.1, null())
        )?;
        // SAFETY: a handle.
        let memory = unsafe { (rank.library.wholememory_tensor_get_memory_handle)(table) };
        let own = rank.own_part(memory)?;
        rank.write(own.address, &self.bytes[own.offset..own.offset + own.bytes])?;
        rank.barrier()?;
        Ok(table)
    }

    fn row(&self, number: i64) -> Option<&[u8]> {
        let inside = (0..self.rows as i64).contains(&number);
        inside.then(|| &self.bytes[number as usize * self.stride as usize..][..self.columns as usize])
    }

    /// As many numbers as are moved at once: of all rows or of a few, and some that name nothing.
    fn numbers(&self, random: &mut Rng) -> Vec<i64> {
        let most = (MOST / self.columns).min(40_000);
        let count = of(random, &[0, 1, 31, 1000, 17_000, 40_000]).min(most);
        let named = of(random, &[self.rows, self.rows, self.rows.min(3), self.rows + 5]);
        let (none, many) = (random.bool(), self.rows as i64);
        let mut one = |_| match random.u32(..50) {
            0 if none => -1 - random.i64(..1 << 20),
            1 if none => many + random.i64(..1 << 20),
            _ => random.u64(..named) as i64,
        };
        (0..count).map(&mut one).collect()
    }
}

/// A table, and some moves of rows out of it and into it.
pub(super) fn tables(rank: &Rank) -> Verdict {
    for seed in 0..TABLES {
        let random = &mut Rng::with_seed(seed);
        let mut drawn = Drawn::new(rank, random, seed as usize);
        let table = drawn.make(rank)?;
        let what = format!(
            "table {seed} of {} rows of {} bytes, {} apart, {:?}",
            drawn.rows, drawn.columns, drawn.stride, drawn.kind
        );
        for step in 0..random.u32(..4) {
            // Each rank draws the operations of all ranks, and moves its own rows.
            let lots: Vec<u64> = (0..rank.size).map(|_| random.u64(..)).collect();
            let done = match random.u32(..2) {
                0 => scatter(rank, table, &mut drawn, &lots, step as usize),
                _ => gather(rank, table, &drawn, &mut Rng::with_seed(lots[rank.number])),
            };
            done.map_err(|reason| format!("{what}, step {step}: {reason}"))?;
            rank.barrier()?;
        }
        gather(rank, table, &drawn, random).map_err(|reason| format!("{what}, at its end: {reason}"))?;
        rank.barrier()?;
        want!(SUCCESS, rank.wholememory_destroy_tensor(table))?;
    }
    Ok(())
}

fn local_numbers<'a>(rank: &'a Rank, numbers: &[i64], is_wide: bool) -> Verdict<Local<'a>> {
    let shape = Description::array(numbers.len() as i64, if is_wide { INT64 } else { INT });
    let bytes: Vec<u8> = match is_wide {
        true => numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
        false => numbers.iter().flat_map(|number| (*number as i32).to_le_bytes()).collect(),
    };
    Local::new(rank, &bytes, &shape)
}

fn gather(rank: &Rank, table: Handle, drawn: &Drawn, random: &mut Rng) -> Verdict {
    let numbers = drawn.numbers(random);
    let (columns, width) = (drawn.columns as usize, (drawn.columns + of(random, &[0, 0, 1, 16])) as usize);
    let indices = local_numbers(rank, &numbers, random.bool())?;
    let shape = Description::matrix(numbers.len() as i64, columns as i64, width as i64, INT8);
    let output = Local::new(rank, &vec![UNTOUCHED; numbers.len() * width], &shape)?;
    let caller = Caller::new(rank);
    let functions = caller.functions();
    let functions = if random.bool() { null() } else { (&raw const functions).cast() };
    want!(SUCCESS, rank.wholememory_gather(table, indices.tensor, output.tensor, functions, null_mut(), -1))?;
    let found = output.read()?;
    caller.is_even()?;
    for (at, (number, row)) in numbers.iter().zip(found.chunks(width)).enumerate() {
        let (moved, gap) = row.split_at(columns);
        let is_right = match drawn.row(*number) {
            Some(wanted) => moved == wanted,
            None => moved.iter().all(|byte| *byte == UNTOUCHED),
        };
        let is_right = is_right && gap.iter().all(|byte| *byte == UNTOUCHED);
        must(is_right, || format!("{} rows gathered: row {number} at {at}", numbers.len()))?;
    }
    Ok(())
}

/// Ranks write rows of their own, of which none is named twice, each in an order of its own.
fn scatter(rank: &Rank, table: Handle, drawn: &mut Drawn, lots: &[u64], salt: usize) -> Verdict {
    let (rows, columns, stride) = (drawn.rows, drawn.columns as usize, drawn.stride as usize);
    for (number, lot) in lots.iter().enumerate() {
        let random = &mut Rng::with_seed(*lot);
        let most = (MOST / drawn.columns).min(40_000);
        let mut numbers: Vec<i64> =
            (0..rows).filter(|row| *row as usize % rank.size == number).map(|row| row as i64).collect();
        random.shuffle(&mut numbers);
        numbers.truncate(of(random, &[0, 1, 1000, 40_000]).min(most) as usize);
        numbers.extend([-1, rows as i64, i64::from(i32::MIN)]);
        let byte = |at: usize| byte_at(at, salt + number * 7 + 3);
        let values: Vec<u8> = (0..numbers.len() * columns).map(byte).collect();
        if number == rank.number {
            let indices = local_numbers(rank, &numbers, random.bool())?;
            let shape = Description::matrix(numbers.len() as i64, columns as i64, columns as i64, INT8);
            let input = Local::new(rank, &values, &shape)?;
            want!(
                SUCCESS,
                rank.wholememory_scatter(input.tensor, indices.tensor, table, null(), null_mut(), -1)
            )?;
        }
        for (row, value) in numbers.iter().zip(values.chunks(columns)) {
            if (0..rows as i64).contains(row) {
                drawn.bytes[*row as usize * stride..][..columns].copy_from_slice(value);
            }
        }
    }
    Ok(())
}
