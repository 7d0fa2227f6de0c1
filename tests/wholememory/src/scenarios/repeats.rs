//! Gathers whose numbers repeat, large enough that ranks of several islands look for repeats.
//!
//! Hazards: a position gets the row of another number, or none; a row that is converted twice;
//! bytes beside a row that are written.

use std::ffi::c_uint;
use std::ops::Range;
use std::ptr::{null, null_mut};

use fastrand::Rng;

use crate::api::{Description, Handle};
use crate::rank::{Local, Rank, SUCCESS, Verdict, local, must, want};

/// `WHOLEMEMORY_DT_*`
const FLOAT: c_uint = 1;
const DOUBLE: c_uint = 3;
const INT: c_uint = 5;
const INT64: c_uint = 6;
const INT16: c_uint = 7;
const INT8: c_uint = 8;

/// Bytes that no rank writes.
const UNTOUCHED: u8 = 0xa5;
/// Bytes of numbers and rows that are worth a search.
const ENOUGH: usize = 256 << 10;

/// Types of the table and of the gathered rows, and columns.
const SHAPES: [(c_uint, c_uint, usize); 5] =
    [(INT8, INT8, 13), (INT8, INT8, 500), (INT, INT64, 25), (INT64, INT16, 33), (FLOAT, DOUBLE, 12)];

/// How numbers repeat.
#[derive(Debug, Clone, Copy)]
enum Repeats {
    /// Few rows are named often.
    Zipf,
    /// The same in ascending order.
    Sorted,
    /// One row, of another rank.
    Equal,
    /// Two rows in turn.
    InTurn,
    /// Between numbers that are no row's.
    Gaps,
    /// No row is named twice, if there are as many.
    Once,
}

/// Each is searched up to the one without repeats. After it a gather is not searched, then one is.
const GATHERS: [Repeats; 8] = [
    Repeats::Zipf,
    Repeats::Sorted,
    Repeats::Equal,
    Repeats::InTurn,
    Repeats::Gaps,
    Repeats::Once,
    Repeats::Zipf,
    Repeats::Gaps,
];

impl Repeats {
    fn numbers(self, rank: &Rank, rows: usize, count: usize) -> Vec<i64> {
        let random = &mut Rng::with_seed(rank.number as u64);
        let span = (rows as f64).ln();
        let mut zipf = || ((random.f64() * span).exp() as usize * 7919 % rows) as i64;
        let of_next = ((rank.number + 1) % rank.size * rows / rank.size) as i64;
        let at = 0..count as i64;
        match self {
            Self::Zipf => at.map(|_| zipf()).collect(),
            Self::Sorted => {
                let mut numbers: Vec<_> = at.map(|_| zipf()).collect();
                numbers.sort_unstable();
                numbers
            }
            Self::Equal => vec![of_next; count],
            Self::InTurn => at.map(|at| if at % 2 == 0 { of_next } else { 0 }).collect(),
            Self::Gaps => at
                .map(|at| match at % 5 {
                    0 => -1 - at,
                    1 => rows as i64 + at,
                    _ => zipf(),
                })
                .collect(),
            Self::Once => at.map(|at| at * 7919 % rows as i64).collect(),
        }
    }
}

/// An element of a row: every type has it, of `INT8` the low bits.
fn element(row: i64, column: usize, dtype: c_uint) -> Vec<u8> {
    let value = (row.wrapping_mul(31_337) + column as i64 * 257) as i16;
    match dtype {
        FLOAT => f32::from(value).to_le_bytes().to_vec(),
        DOUBLE => f64::from(value).to_le_bytes().to_vec(),
        _ => i64::from(value).to_le_bytes()[..bytes_of(dtype)].to_vec(),
    }
}

pub(super) fn bytes_of(dtype: c_uint) -> usize {
    match dtype {
        DOUBLE | INT64 => 8,
        FLOAT | INT => 4,
        INT16 => 2,
        _ => 1,
    }
}

/// Rows of the model.
pub(super) fn rows_of(numbers: Range<usize>, columns: usize, dtype: c_uint) -> Vec<u8> {
    let row = |number| (0..columns).flat_map(move |column| element(number as i64, column, dtype));
    numbers.flat_map(row).collect()
}

pub(super) fn gathered(rank: &Rank) -> Verdict {
    for (at, shape) in SHAPES.into_iter().enumerate() {
        let (dtype, to, columns) = shape;
        let count = ENOUGH / (columns * bytes_of(dtype).min(bytes_of(to)) + 4) + 100 + rank.number;
        // A prime, so that the step of the numbers meets each row.
        let rows = 1009;
        let kind = rank.kinds()[at % rank.kinds().len()];
        let (mut table, described) =
            (null_mut(), Description::matrix(rows as i64, columns as i64, columns as i64, dtype));
        want!(
            SUCCESS,
            rank.wholememory_create_tensor(&mut table, &described, rank.comm, kind.0, kind.1, null())
        )?;
        // SAFETY: a handle.
        let own = rank.own_part(unsafe { (rank.library.wholememory_tensor_get_memory_handle)(table) })?;
        let row_bytes = columns * bytes_of(dtype);
        let mine = own.offset / row_bytes..(own.offset + own.bytes) / row_bytes;
        rank.write(own.address, &rows_of(mine, columns, dtype))?;
        let wanted = rows_of(0..rows, columns, to);
        rank.barrier()?;
        for (round, repeats) in GATHERS.into_iter().enumerate() {
            let indices = if (at + round) % 2 == 0 { INT } else { INT64 };
            let numbers = repeats.numbers(rank, rows, count);
            gather(rank, table, (&numbers, indices), (&wanted, columns, to))
                .map_err(|reason| format!("{shape:?} of {kind:?}, {repeats:?}, round {round}: {reason}"))?;
        }
        rank.barrier()?;
        want!(SUCCESS, rank.wholememory_destroy_tensor(table))?;
    }
    Ok(())
}

/// Gathers rows, which must be those of the model.
pub(super) fn gather(
    rank: &Rank,
    table: Handle,
    (numbers, dtype): (&[i64], c_uint),
    (wanted, columns, to): (&[u8], usize, c_uint),
) -> Verdict {
    let (indices, gap) = (local(rank, numbers, dtype)?, rank.number % 2);
    let shape = Description::matrix(numbers.len() as i64, columns as i64, (columns + gap) as i64, to);
    let (row_bytes, stride) = (columns * bytes_of(to), (columns + gap) * bytes_of(to));
    let output = Local::new(rank, &vec![UNTOUCHED; numbers.len() * stride], &shape)?;
    want!(SUCCESS, rank.wholememory_gather(table, indices.tensor, output.tensor, null(), null_mut(), -1))?;
    for (at, (number, found)) in numbers.iter().zip(output.read()?.chunks(stride)).enumerate() {
        let (moved, gap) = found.split_at(row_bytes);
        let row = usize::try_from(*number).ok().and_then(|number| wanted.chunks(row_bytes).nth(number));
        let is_right = match row {
            Some(row) => moved == row,
            None => moved.iter().all(|byte| *byte == UNTOUCHED),
        };
        let is_right = is_right && gap.iter().all(|byte| *byte == UNTOUCHED);
        must(is_right, || format!("row {number} at {at} of {}", numbers.len()))?;
    }
    Ok(())
}
