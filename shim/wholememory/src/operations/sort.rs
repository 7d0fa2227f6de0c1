//! Brings equal row numbers together: a stable sort by digits of eight bits, and the runs of equal
//! numbers.

use wm_abi::CUdeviceptr;
use wm_kernels::wholememory::{
    Numbers, RunsCollect, RunsMark, ScanExclusive, ScanTileSums, SortBegin, SortCount, SortKeys, SortMove,
};

use crate::error::Result;
use crate::kernels::{Kernels, THREADS, TILE};
use crate::operations::scratch::{Scratch, Workspace};

/// Bits of a digit, and how many digits' values there are.
const DIGIT_BITS: u32 = 8;
const DIGITS: u64 = 1 << DIGIT_BITS;

/// Row numbers to be sorted, in device memory.
#[derive(Debug, Clone, Copy)]
pub struct Unsorted {
    /// Their array.
    pub numbers: Numbers,
    /// The rows of interest: others are left out.
    pub first_row: u64,
    /// How many rows are of interest.
    pub rows: u64,
}

/// The place of numbers that name no row of interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// They are sorted behind all rows.
    Last,
    /// The first digit leaves them out.
    LeftOut,
}

/// Rows that were named, each once, and where.
#[derive(Debug)]
pub struct RowRuns {
    _scratch: Scratch,
    /// 32-bit positions of the numbers, run by run.
    pub positions: CUdeviceptr,
    /// 64-bit numbers from the first row of interest on, one a run.
    pub rows: CUdeviceptr,
    /// The begin of each run in `positions`, and the end of the last one; 64 bits each.
    pub starts: CUdeviceptr,
    /// The address of the number of runs; 64 bits.
    pub count: CUdeviceptr,
}

/// Numbers that are being sorted, and where each came from.
#[derive(Debug)]
pub struct Sorting<'a> {
    workspace: &'a Workspace<'a>,
    unsorted: Unsorted,
    others: Others,
    keys: SortKeys,
    other_numbers: CUdeviceptr,
    other_positions: CUdeviceptr,
    counts: CUdeviceptr,
    sums: CUdeviceptr,
    total: CUdeviceptr,
}

impl<'a> Sorting<'a> {
    /// Bytes of each of the pieces of memory that it takes to sort these.
    pub fn bytes(unsorted: &Unsorted) -> [u64; 7] {
        let (count, counts) = (unsorted.numbers.count, counts_of(unsorted.numbers.count));
        let (numbers, positions) = (u64::from(unsorted.number_bytes()) * count, 4 * count);
        let sums = 8 * (counts.max(count).div_ceil(TILE) + 1);
        [numbers, positions, numbers, positions, 4 * (counts + 1), sums, 8]
    }

    /// With these pieces of memory.
    pub fn new(
        workspace: &'a Workspace<'a>,
        unsorted: Unsorted,
        others: Others,
        places: [CUdeviceptr; 7],
    ) -> Self {
        let [numbers, positions, other_numbers, other_positions, counts, sums, total] = places;
        let bytes = unsorted.number_bytes();
        let keys = SortKeys { numbers, positions, n: unsorted.numbers.count, kept: 0, bytes };
        Self { workspace, unsorted, others, keys, other_numbers, other_positions, counts, sums, total }
    }

    /// The address of the 32-bit positions, in the order so far.
    pub fn positions(&self) -> CUdeviceptr {
        self.keys.positions
    }

    fn kernels(&self) -> Result<&'a Kernels> {
        self.workspace.communicator.kernels().map(|kernels| &**kernels)
    }

    /// Sorts by all bits from `low` on, or by some below it where no digit more is needed. A number
    /// that names no row of interest has become the number of rows, which is the largest.
    ///
    /// # Errors
    /// The driver's.
    pub fn sort(&mut self, low: u32) -> Result {
        let (kernels, stream) = (self.kernels()?, self.workspace.stream);
        let Unsorted { numbers, first_row, rows } = self.unsorted;
        let (n, first_row) = (numbers.count, first_row as i64);
        kernels.launch(
            &SortBegin { rows: numbers, first_row, rows_in_part: rows, keys: self.keys },
            n,
            0,
            stream,
        )?;

        let limit = if self.others == Others::LeftOut { rows } else { u64::MAX };
        let (counts, tiles) = (self.counts, n.div_ceil(TILE));
        let bits = u64::BITS - rows.leading_zeros();
        let digits = bits.saturating_sub(low).div_ceil(DIGIT_BITS);
        for shift in (bits.saturating_sub(digits * DIGIT_BITS)..bits).step_by(DIGIT_BITS as usize) {
            let keys = self.keys;
            kernels.launch_blocks(&SortCount { keys, limit, shift, counts }, tiles, THREADS, stream)?;
            self.scan(counts, counts_of(n), self.total)?;
            let (output_numbers, output_positions) = (self.other_numbers, self.other_positions);
            let moving = SortMove { keys, limit, shift, offsets: counts, output_numbers, output_positions };
            kernels.launch_blocks(&moving, tiles, THREADS, stream)?;
            std::mem::swap(&mut self.keys.numbers, &mut self.other_numbers);
            std::mem::swap(&mut self.keys.positions, &mut self.other_positions);
            self.keys.kept = self.total;
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

impl Unsorted {
    /// Bytes of a number while it is sorted: as few as the number of rows has.
    fn number_bytes(&self) -> u32 {
        if u32::try_from(self.rows).is_ok() { 4 } else { 8 }
    }
}

/// How many counts of digits there are: one a digit and tile.
fn counts_of(count: u64) -> u64 {
    DIGITS * count.div_ceil(TILE)
}

/// Sorts row numbers, in a stream, and finds the runs of equal ones.
///
/// # Errors
/// The driver's.
pub fn runs(workspace: &Workspace<'_>, unsorted: Unsorted) -> Result<RowRuns> {
    let n = unsorted.numbers.count;
    let [a, b, c, d, e, f, g] = Sorting::bytes(&unsorted);
    let (scratch, places) = workspace.allocate([a, b, c, d, e, f, g, 4 * (n + 1), 8 * n, 8 * (n + 1), 8])?;
    let [a, b, c, d, e, f, g, marks, found, starts, total] = places;
    let mut sorting = Sorting::new(workspace, unsorted, Others::LeftOut, [a, b, c, d, e, f, g]);
    sorting.sort(0)?;
    let (kernels, stream, keys) = (sorting.kernels()?, workspace.stream, sorting.keys);
    kernels.launch(&RunsMark { keys, marks }, n, 0, stream)?;
    sorting.scan(marks, n, total)?;
    kernels.launch(&RunsCollect { keys, marks, runs: found, starts }, n, 0, stream)?;
    Ok(RowRuns { positions: sorting.positions(), _scratch: scratch, rows: found, starts, count: total })
}
