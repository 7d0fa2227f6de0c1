//! Rows that are looked up in a cache: a gather through it, after which the cache may be adjusted.

use std::fmt::Debug;

use wm_abi::CUstream;
use wm_kernels::wholememory::{ArrivedRows, CacheGather, CacheTables, Numbers};

use crate::error::Result;
use crate::operations::moves::{RowDirection, RowLaunch};

/// A cache that learns which rows are looked up.
pub trait Lookups: Debug {
    /// Counts rows, by their numbers in this rank's island, and fills lines with the rows that are
    /// looked up most.
    ///
    /// # Errors
    /// The driver's.
    fn adjust(&self, numbers: Numbers, stream: CUstream) -> Result;

    /// The same with rows of any island, which lines get from the packed rows of their gather.
    ///
    /// # Errors
    /// The driver's.
    fn adjust_to_arrived(&self, rows: ArrivedRows, stream: CUstream) -> Result;
}

/// The copies of rows in a cache: of the rows of this rank's island, by their numbers there; or
/// of the rows of all islands, by their numbers in the table.
#[derive(Debug, Clone, Copy)]
pub struct RowCache<'a> {
    /// Its parts.
    pub tables: CacheTables,
    /// Of memory that spans islands: it has copies of the rows of all of them.
    pub is_of_all: bool,
    /// It has so few lines that many rows come from the table.
    pub is_small: bool,
    /// The cache, where it is adjusted to these lookups.
    pub lookups: Option<&'a dyn Lookups>,
}

impl RowCache<'_> {
    /// Gathers rows as their numbers come, and counts them. Rows that are converted come from the
    /// table.
    pub(super) fn look_up(&self, launch: &RowLaunch<'_>) -> Result {
        if launch.numbers.count == 0 || launch.places.columns == 0 {
            return Ok(());
        }
        match launch.packed.kind == launch.places.kind {
            true => self.gather(launch, 0)?,
            false => launch.convert_rows(RowDirection::Gather)?,
        }
        self.adjust(launch.numbers, launch.workspace.stream)
    }

    /// Gathers rows in an order by positions (an address), or as their numbers come (0).
    pub(super) fn gather(&self, launch: &RowLaunch<'_>, positions: u64) -> Result {
        let (row_bytes, width, words) = launch.words();
        let rows = launch.rows(positions);
        launch.launch(&CacheGather { rows, row_bytes, width, cache: self.tables }, words)
    }

    pub(super) fn adjust(&self, numbers: Numbers, stream: CUstream) -> Result {
        self.lookups.map_or(Ok(()), |lookups| lookups.adjust(numbers, stream))
    }
}
