//! Brings equal row numbers together: a stable sort by digits of four bits, and the runs of equal numbers.

use wm_abi::CUdeviceptr;
use wm_kernels::wholememory::{
    RunsCollect, RunsMark, ScanExclusive, ScanTileSums, SortBegin, SortCount, SortMove,
};

use crate::error::Result;
use crate::kernels::Kernels;
use crate::operations::scratch::{Scratch, Workspace};

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

/// Numbers that are being sorted, and where each came from.
#[derive(Debug)]
pub struct Sorting<'a> {
    workspace: &'a Workspace<'a>,
    unsorted: Unsorted,
    numbers: CUdeviceptr,
    positions: CUdeviceptr,
    other_numbers: CUdeviceptr,
    other_positions: CUdeviceptr,
    counts: CUdeviceptr,
    sums: CUdeviceptr,
}

impl<'a> Sorting<'a> {
    /// Bytes of each of the pieces of memory that it takes to sort so many numbers.
    pub fn bytes(count: u64) -> [u64; 6] {
        let (word, counts) = (8 * count, counts_of(count));
        [word, word, word, word, 4 * (counts + 1), 8 * (counts.max(count).div_ceil(SCAN_TILE) + 1)]
    }

    /// With these pieces of memory.
    pub fn new(workspace: &'a Workspace<'a>, unsorted: Unsorted, places: [CUdeviceptr; 6]) -> Self {
        let [numbers, positions, other_numbers, other_positions, counts, sums] = places;
        Self { workspace, unsorted, numbers, positions, other_numbers, other_positions, counts, sums }
    }

    /// Where the 64-bit positions are, in the order so far.
    pub fn positions(&self) -> CUdeviceptr {
        self.positions
    }

    fn kernels(&self) -> Result<&'a Kernels> {
        self.workspace.communicator.kernels().map(|kernels| &**kernels)
    }

    /// Writes numbers and positions as they come.
    ///
    /// # Errors
    /// The driver's.
    pub fn begin(&self) -> Result {
        let Unsorted { indices, index_bytes, count, first_row, rows } = self.unsorted;
        let (first_row, numbers, positions) = (first_row as i64, self.numbers, self.positions);
        let begin = SortBegin { indices, index_bytes, count, first_row, rows, numbers, positions };
        self.kernels()?.launch(&begin, count, 0, self.workspace.stream)
    }

    /// Sorts by all bits from `low` on. What is left out has the number of rows, which is the largest.
    ///
    /// # Errors
    /// The driver's.
    pub fn sort(&mut self, low: u32) -> Result {
        let (kernels, stream, n) = (self.kernels()?, self.workspace.stream, self.unsorted.count);
        let (counts, tiles_counts) = (self.counts, counts_of(n));
        let bits = u64::BITS - self.unsorted.rows.leading_zeros();
        for shift in (low..bits).step_by(DIGIT_BITS as usize) {
            kernels.launch(&SortCount { numbers: self.numbers, n, shift, counts }, n, 0, stream)?;
            self.scan(counts, tiles_counts, 0)?;
            let moved = SortMove {
                numbers: self.numbers,
                positions: self.positions,
                n,
                shift,
                offsets: counts,
                output_numbers: self.other_numbers,
                output_positions: self.other_positions,
            };
            kernels.launch(&moved, n, 0, stream)?;
            std::mem::swap(&mut self.numbers, &mut self.other_numbers);
            std::mem::swap(&mut self.positions, &mut self.other_positions);
        }
        Ok(())
    }

    /// Exclusive sums in place, and the total if there is a place for it.
    fn scan(&self, values: CUdeviceptr, count: u64, total: CUdeviceptr) -> Result {
        let (kernels, stream, sums) = (self.kernels()?, self.workspace.stream, self.sums);
        kernels.launch(&ScanTileSums { values, n: count, sums }, count, 0, stream)?;
        kernels.launch(&ScanExclusive { values, n: count, sums, output: values, total }, count, 0, stream)
    }
}

/// How many counts of digits there are: one a digit and tile.
fn counts_of(count: u64) -> u64 {
    DIGITS * count.div_ceil(SORT_TILE)
}

/// Sorts row numbers, in a stream, and finds the runs of equal ones.
///
/// # Errors
/// The driver's.
pub fn runs(workspace: &Workspace<'_>, unsorted: Unsorted) -> Result<RowRuns> {
    let Unsorted { count: n, rows, .. } = unsorted;
    let [a, b, c, d, e, f] = Sorting::bytes(n);
    let (scratch, places) = workspace.take([a, b, c, d, e, f, 4 * (n + 1), 8 * n, 8 * (n + 1), 8])?;
    let [a, b, c, d, e, f, marks, found, starts, total] = places;
    let mut sorting = Sorting::new(workspace, unsorted, [a, b, c, d, e, f]);
    sorting.begin()?;
    sorting.sort(0)?;
    let (kernels, stream, numbers) = (sorting.kernels()?, workspace.stream, sorting.numbers);
    kernels.launch(&RunsMark { numbers, n, rows, marks }, n, 0, stream)?;
    sorting.scan(marks, n, total)?;
    kernels.launch(&RunsCollect { numbers, n, rows, marks, runs: found, starts }, n, 0, stream)?;
    Ok(RowRuns { positions: sorting.positions(), _scratch: scratch, rows: found, starts, count: total })
}
