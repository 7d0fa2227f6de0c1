//! The order in which rows of the host are moved: by address, as far as it matters.
//!
//! A GPU that reads rows of the host in random order looks up a page for nearly each of them. That
//! bounds the rows per second at any length of a row. In the order of their addresses the link is
//! the bound, and a row that is named twice crosses it once.

use wm_abi::CUdeviceptr;
use wm_kernels::wholememory::Numbers;

use crate::error::Result;
use crate::memory::Memory;
use crate::operations::scratch::{Scratch, Workspace};
use crate::operations::sort::{Others, Sorting, Unsorted};
use crate::stream::CallerStream;
use crate::vocabulary::codes::Location;

/// Longest row that is worth it, bytes.
const LONGEST_ROW: u64 = 64 << 10;
/// Fewest rows that are, and fewest bytes of fewer rows: less is moved before it is sorted.
const FEWEST_ROWS: u64 = 1 << 14;
const FEWEST_BYTES: u64 = 16 << 20;
/// Rows of less memory need no order: the GPU finds all of its pages.
const WINDOW: u64 = 64 << 10;
/// Rows within so many bytes need no order among themselves: those of one warp, they are found in
/// L1.
const NEIGHBOURS: u64 = 1024;
/// The sort counts in 32 bits.
const MOST_ROWS: u64 = 1 << 31;

/// An order of row numbers.
#[derive(Debug)]
pub(crate) struct RowOrder {
    _scratch: Scratch,
    /// 32-bit positions of the numbers.
    pub(crate) positions: CUdeviceptr,
}

impl RowOrder {
    /// The order for some rows, if there is one that pays, and memory to find it.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn of(
        memory: &Memory,
        rows_in_table: u64,
        row_bytes: u64,
        numbers: &Numbers,
        workspace: &Workspace<'_>,
    ) -> Result<Option<Self>> {
        let stride = memory.request().granularity;
        let pays = memory.request().location == Location::Host
            && row_bytes <= LONGEST_ROW
            && (numbers.count >= FEWEST_ROWS || numbers.count.saturating_mul(row_bytes) >= FEWEST_BYTES)
            && numbers.count < MOST_ROWS
            && rows_in_table.saturating_mul(stride) > WINDOW;
        if !pays {
            return Ok(None);
        }
        // Not in a capture: the caller's functions may be no calls for one, and a graph with memory
        // of its own bears less.
        if CallerStream::with(workspace.communicator.kernels()?, workspace.stream).is_captured()? {
            return Ok(None);
        }
        let unsorted = Unsorted { numbers: *numbers, first_row: 0, rows: rows_in_table };
        // Without memory rows are moved as they come.
        let Ok((scratch, places)) = workspace.allocate(Sorting::bytes(&unsorted)) else { return Ok(None) };
        let mut sorting = Sorting::new(workspace, unsorted, Others::Last, places);
        sorting.sort((NEIGHBOURS / stride.max(1)).max(1).ilog2())?;
        Ok(Some(Self { _scratch: scratch, positions: sorting.positions() }))
    }
}
