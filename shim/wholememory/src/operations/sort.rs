//! Brings equal row numbers together: a stable sort by digits of four bits, and the runs of equal numbers.

use wm_abi::{CUdeviceptr, CUstream};
use wm_kernels::wholememory::{
    RunsCollect, RunsMark, ScanExclusive, ScanTileSums, SortBegin, SortCount, SortMove,
};

use crate::communicator::Communicator;
use crate::error::Result;
use crate::operations::scratch::Scratch;

/// Bits of a digit, and how many digits' values there are.
const DIGIT_BITS: u32 = 4;
const DIGITS: u64 = 1 << DIGIT_BITS;
/// Numbers that a block counts at once.
const SORT_TILE: u64 = 2048;
/// Values that a block sums up at once.
const SCAN_TILE: u64 = 4096;

/// Row numbers to be sorted, in device memory.
#[derive(Debug, Clone, Copy)]
pub struct Unsorted {
    /// Where they are.
    pub indices: CUdeviceptr,
    /// Bytes of each: 4 or 8.
    pub index_bytes: u32,
    /// How many.
    pub count: u64,
    /// The rows of interest: others are left out.
    pub first_row: u64,
    /// How many rows are of interest.
    pub rows: u64,
}

/// Rows that were named, each once, and where.
#[derive(Debug)]
pub struct RowRuns {
    _scratch: Scratch,
    /// 64-bit positions of the numbers, run by run.
    pub positions: CUdeviceptr,
    /// 64-bit numbers from the first row of interest on, one a run.
    pub rows: CUdeviceptr,
    /// Where each run begins in `positions`, and where the last one ends; 64 bits.
    pub starts: CUdeviceptr,
    /// Where how many runs there are is written; 64 bits.
    pub count: CUdeviceptr,
}

/// Sorts row numbers, in a stream.
///
/// # Errors
/// The driver's.
pub fn runs(communicator: &Communicator, stream: CUstream, unsorted: Unsorted) -> Result<RowRuns> {
    let Unsorted { indices, index_bytes, count: n, first_row, rows } = unsorted;
    let counts_of = DIGITS * n.div_ceil(SORT_TILE);
    let word = 8 * n;
    let sums_of = counts_of.max(n).div_ceil(SCAN_TILE) + 1;
    let bytes = [word, word, word, word, 4 * (counts_of + 1), 8 * sums_of, 4 * (n + 1), word, 8 * (n + 1), 8];
    let (scratch, places) = Scratch::new(communicator, stream, bytes)?;
    let [
        mut numbers,
        mut positions,
        mut other_numbers,
        mut other_positions,
        counts,
        sums,
        marks,
        found,
        starts,
        total,
    ] = places;
    let kernels = communicator.kernels()?;
    let begin =
        SortBegin { indices, index_bytes, count: n, first_row: first_row as i64, rows, numbers, positions };
    kernels.launch(&begin, n, 0, stream)?;
    let scan = |values, count: u64, total| -> Result {
        kernels.launch(&ScanTileSums { values, n: count, sums }, count, 0, stream)?;
        kernels.launch(&ScanExclusive { values, n: count, sums, output: values, total }, count, 0, stream)
    };
    // What is left out has the number of rows, which is the largest.
    let bits = u64::BITS - rows.leading_zeros();
    for shift in (0..bits).step_by(DIGIT_BITS as usize) {
        kernels.launch(&SortCount { numbers, n, shift, counts }, n, 0, stream)?;
        scan(counts, counts_of, 0)?;
        let moved = SortMove {
            numbers,
            positions,
            n,
            shift,
            offsets: counts,
            output_numbers: other_numbers,
            output_positions: other_positions,
        };
        kernels.launch(&moved, n, 0, stream)?;
        std::mem::swap(&mut numbers, &mut other_numbers);
        std::mem::swap(&mut positions, &mut other_positions);
    }
    kernels.launch(&RunsMark { numbers, n, rows, marks }, n, 0, stream)?;
    scan(marks, n, total)?;
    kernels.launch(&RunsCollect { numbers, n, rows, marks, runs: found, starts }, n, 0, stream)?;
    Ok(RowRuns { _scratch: scratch, positions, rows: found, starts, count: total })
}
