//! Gathers from hierarchical memory, large enough that ranks of an island share the rows that they
//! ask other islands for.
//!
//! Hazards: a rank gets the row of another number, or bytes from before; a row that is converted
//! twice; a rank that waits for one that has no rows, or has ended.

use std::ffi::c_uint;
use std::ptr::{null, null_mut};

use fastrand::Rng;

use super::deaths::until_a_rank_ends;
use super::repeats::{bytes_of, gather, rows_of};
use crate::api::{Description, Handle};
use crate::rank::{
    CUDA_ERROR, DEVICE, HIERARCHY, HOST, INVALID_INPUT, Local, Rank, SUCCESS, Verdict, local, must, want,
};

/// `WHOLEMEMORY_DT_*`
const FLOAT: c_uint = 1;
const DOUBLE: c_uint = 3;
const INT: c_uint = 5;
const INT64: c_uint = 6;
const INT16: c_uint = 7;
const INT8: c_uint = 8;

/// Bytes of numbers and rows of a rank that are worth claims.
const ENOUGH: usize = 256 << 10;
const ROWS: usize = 1009;

/// Types of the table and of the gathered rows, columns, and the place of the table.
const SHAPES: [(c_uint, c_uint, usize, c_uint); 3] =
    [(INT8, INT8, 700, DEVICE), (INT64, INT16, 333, HOST), (FLOAT, DOUBLE, 160, DEVICE)];

/// The rows that the ranks of an island want.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    /// The same ones.
    Equal,
    /// Ones of which each neighbour wants half.
    Overlapping,
    /// Each other ones.
    Disjoint,
    /// Few rows often, others seldom.
    Skewed,
    /// Any, between numbers that are no row's.
    Gaps,
    /// One rank of all wants none.
    NoneAtOne,
    /// One row.
    One,
}

const GATHERS: [Wanted; 8] = [
    Wanted::Equal,
    Wanted::Overlapping,
    Wanted::Gaps,
    Wanted::Skewed,
    Wanted::NoneAtOne,
    Wanted::One,
    Wanted::Disjoint,
    // Behind disjoint ones the ranks of an island claim no rows, if these were as many as repeats.
    Wanted::Equal,
];

impl Wanted {
    fn numbers(self, rank: &Rank, (rows, count): (usize, usize), round: usize) -> Vec<i64> {
        let (mate, mates) = (rank.number / rank.islands, rank.size.div_ceil(rank.islands));
        let alike = &mut Rng::with_seed(round as u64);
        let own = &mut Rng::with_seed((round * 64 + rank.number) as u64);
        let share = rows / mates.max(1);
        let within =
            |random: &mut Rng, first: usize, span: usize| ((first + random.usize(..span)) % rows) as i64;
        let span = (rows as f64).ln();
        (0..count)
            .map(|at| match self {
                Self::Equal => within(alike, 0, rows),
                Self::Overlapping => within(own, mate * share / 2, share),
                Self::Disjoint => within(own, mate * share, share),
                Self::Skewed => ((own.f64() * span).exp() as usize * 7919 % rows) as i64,
                Self::Gaps => match at % 4 {
                    0 => -1 - at as i64,
                    1 => (rows + at) as i64,
                    _ => within(own, 0, rows),
                },
                Self::NoneAtOne => within(alike, 0, rows),
                Self::One => (rows - 1 - round) as i64,
            })
            .take(if matches!(self, Self::NoneAtOne) && rank.number == 1 { 0 } else { count })
            .collect()
    }
}

/// A table of rows of the model.
fn table(rank: &Rank, (rows, columns): (usize, usize), dtype: c_uint, location: c_uint) -> Verdict<Handle> {
    let shape = Description::matrix(rows as i64, columns as i64, columns as i64, dtype);
    let mut table = null_mut();
    want!(
        SUCCESS,
        rank.wholememory_create_tensor(&mut table, &shape, rank.comm, HIERARCHY, location, null())
    )?;
    // SAFETY: a handle.
    let own = rank.own_part(unsafe { (rank.library.wholememory_tensor_get_memory_handle)(table) })?;
    let row_bytes = columns * bytes_of(dtype);
    let mine = own.offset / row_bytes..(own.offset + own.bytes) / row_bytes;
    rank.write(own.address, &rows_of(mine, columns, dtype))?;
    rank.barrier()?;
    Ok(table)
}

fn end(rank: &Rank, table: Handle) -> Verdict {
    rank.barrier()?;
    want!(SUCCESS, rank.wholememory_destroy_tensor(table))
}

fn spans(rank: &Rank) -> bool {
    rank.islands.min(rank.size) > 1
}

pub(super) fn gathered(rank: &Rank) -> Verdict {
    if !spans(rank) {
        return Ok(());
    }
    // Islands of different sizes play one shape: the time is the kernels'.
    let shapes = if rank.size.is_multiple_of(rank.islands) { SHAPES.len() } else { 1 };
    for (at, shape) in SHAPES.into_iter().enumerate().take(shapes) {
        let (dtype, to, columns, location) = shape;
        let table = table(rank, (ROWS, columns), dtype, location)?;
        let count = ENOUGH / (columns * bytes_of(dtype).min(bytes_of(to)) + 4) + 100 + rank.number;
        let wanted = rows_of(0..ROWS, columns, to);
        for (round, kind) in GATHERS.into_iter().enumerate() {
            let indices = if (at + round) % 2 == 0 { INT } else { INT64 };
            let numbers = kind.numbers(rank, (ROWS, count), round);
            gather(rank, table, (&numbers, indices), (&wanted, columns, to))
                .map_err(|reason| format!("{shape:?}, {kind:?}, round {round}: {reason}"))?;
        }
        end(rank, table)?;
    }
    Ok(())
}

/// Rows that pass in more chunks than there are buffers in turn: to the ranks of one island, which
/// want the same ones. The others want none.
pub(super) fn many_chunks(rank: &Rank) -> Verdict {
    // Else chunks are as long as twice as many rows.
    if rank.islands.min(rank.size) < 3 {
        return Ok(());
    }
    let (rows, columns) = (12 * rank.size, 2 << 20);
    let shape = Description::matrix(rows as i64, columns as i64, columns as i64, INT8);
    let mut table = null_mut();
    want!(SUCCESS, rank.wholememory_create_tensor(&mut table, &shape, rank.comm, HIERARCHY, DEVICE, null()))?;
    // SAFETY: a handle.
    let own = rank.own_part(unsafe { (rank.library.wholememory_tensor_get_memory_handle)(table) })?;
    for (at, row) in (own.offset / columns..(own.offset + own.bytes) / columns).enumerate() {
        rank.write(own.address + (at * columns) as u64, &vec![row as u8 + 1; columns])?;
    }
    rank.barrier()?;
    // Those of rank 1, which is on the second island.
    let count = if rank.number.is_multiple_of(rank.islands) { 12 } else { 0 };
    let numbers: Vec<_> = (12..12 + count as i64).collect();
    let indices = local(rank, &numbers, INT64)?;
    let shape = Description::matrix(count as i64, columns as i64, columns as i64, INT8);
    let output = Local::new(rank, &vec![0xa5; count * columns], &shape)?;
    want!(SUCCESS, rank.wholememory_gather(table, indices.tensor, output.tensor, null(), null_mut(), -1))?;
    let found = output.read()?;
    for (number, row) in numbers.iter().zip(found.chunks(columns)) {
        let is_right = row == vec![*number as u8 + 1; columns];
        must(is_right, || format!("row {number} has {} and others", row[0]))?;
    }
    end(rank, table)
}

/// Each rank in turn makes a wrong call, while the others have claimed rows.
pub(super) fn behind_an_error(rank: &Rank) -> Verdict {
    if !spans(rank) {
        return Ok(());
    }
    let (columns, count) = (500, ENOUGH / 504 + 100);
    let table = table(rank, (ROWS, columns), INT8, DEVICE)?;
    let wanted = rows_of(0..ROWS, columns, INT8);
    for round in 0..rank.size {
        let numbers = Wanted::Equal.numbers(rank, (ROWS, count), round);
        let (indices, none) = (local(rank, &numbers, INT64)?, null_mut());
        let shape = Description::matrix(count as i64, columns as i64, columns as i64, INT8);
        let output = Local::new(rank, &vec![0; count * columns], &shape)?;
        let indices = if rank.number == round { none } else { indices.tensor };
        want!(INVALID_INPUT, rank.wholememory_gather(table, indices, output.tensor, null(), none, -1))?;
        for gathers in 0..2 {
            let numbers = Wanted::Equal.numbers(rank, (ROWS, count), round + 3 * gathers);
            gather(rank, table, (&numbers, INT64), (&wanted, columns, INT8))
                .map_err(|reason| format!("gather {gathers} behind error {round}: {reason}"))?;
        }
    }
    end(rank, table)
}

/// The test lets a launch of the first gather fail at one rank, before the rank has told its
/// counts: the call fails at all ranks, and the next ones are sound.
pub(super) fn a_launch_fails(rank: &Rank) -> Verdict {
    // Numbers of more than one tile.
    let (columns, count) = (250, 1100);
    let table = table(rank, (ROWS, columns), INT8, DEVICE)?;
    let wanted = rows_of(0..ROWS, columns, INT8);
    let numbers = Wanted::Equal.numbers(rank, (ROWS, count), 0);
    let indices = local(rank, &numbers, INT64)?;
    let shape = Description::matrix(count as i64, columns as i64, columns as i64, INT8);
    let output = Local::new(rank, &vec![0; count * columns], &shape)?;
    want!(CUDA_ERROR, rank.wholememory_gather(table, indices.tensor, output.tensor, null(), null_mut(), -1))?;
    for round in 1..4 {
        let numbers = Wanted::Equal.numbers(rank, (ROWS, count), round);
        gather(rank, table, (&numbers, INT64), (&wanted, columns, INT8))?;
    }
    end(rank, table)
}

/// Each rank gathers all rows, some ranks twice, as often as the test says: so the rows that cross
/// are known.
pub(super) fn counted(rank: &Rank) -> Verdict {
    if !spans(rank) {
        return Ok(());
    }
    let gathers = std::env::var("WHOLEMEMORY_SUITE_GATHERS").ok().and_then(|count| count.parse().ok());
    let (rows, columns) = (960, 512);
    let table = table(rank, (rows, columns), INT8, DEVICE)?;
    let wanted = rows_of(0..rows, columns, INT8);
    let mut all: Vec<_> = (0..rows * (1 + rank.number % 2)).map(|at| (at % rows) as i64).collect();
    Rng::with_seed(rank.number as u64).shuffle(&mut all);
    for _ in 0..gathers.unwrap_or(1) {
        gather(rank, table, (&all, INT), (&wanted, columns, INT8))?;
    }
    end(rank, table)
}

/// A rank ends at a random moment, while others borrow rows from it.
pub(super) fn a_rank_ends(rank: &Rank) -> Verdict {
    if !spans(rank) {
        return Ok(());
    }
    let (columns, count) = (1000, ENOUGH / 1000);
    let table = table(rank, (400, columns), INT8, DEVICE)?;
    let shape = Description::matrix(count as i64, columns as i64, columns as i64, INT8);
    let (mut round, wanted) = (0, rows_of(0..400, columns, INT8));
    until_a_rank_ends(rank, || {
        round += 1;
        let numbers = Wanted::Overlapping.numbers(rank, (400, count), round);
        let indices = local(rank, &numbers, INT64)?;
        let output = Local::new(rank, &vec![0; count * columns], &shape)?;
        let (numbered, to) = (indices.tensor, output.tensor);
        // SAFETY: handles.
        let code = unsafe { (rank.library.wholememory_gather)(table, numbered, to, null(), null_mut(), -1) };
        if code == SUCCESS {
            let found = output.read()?;
            let row = |number: &i64| &wanted[*number as usize * columns..][..columns];
            let is_right =
                numbers.iter().zip(found.chunks(columns)).all(|(number, found)| row(number) == found);
            must(is_right, || format!("round {round}: a row is another one"))?;
        }
        Ok(code)
    })
}
