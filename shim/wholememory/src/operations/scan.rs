//! Exclusive sums of counts, in place, and their total on the host.

use wm_kernels::wholememory::{ScanExclusive, ScanTileSums};

use crate::environment::{ScratchArray, ScratchLayout, Temporary};
use crate::error::{Error, Result};
use crate::kernels::{THREADS, TILE};
use crate::stream::CallerStream;

/// The temporary memory of a scan.
#[derive(Debug, Clone, Copy)]
pub struct Scan {
    count: u64,
    sums: ScratchArray,
    total: ScratchArray,
}

impl Scan {
    /// A scan of so many counts.
    ///
    /// # Errors
    /// As of [`ScratchLayout::add`].
    pub fn new(count: u64, parts: &mut ScratchLayout) -> Result<Self> {
        Ok(Self { count, sums: parts.add(count.div_ceil(TILE), 8)?, total: parts.add(1, 8)? })
    }

    /// Turns the counts at an address into the sum of the counts before each, with the total behind
    /// the last one. Waits for the total.
    ///
    /// # Errors
    /// [`Error::Value`] for a total that does not fit into 31 bits; the driver's.
    pub fn run(&self, stream: &CallerStream, memory: &Temporary, values: u64) -> Result<i64> {
        let (n, sums, total) = (self.count, memory.at(self.sums), memory.at(self.total));
        if n > 0 {
            stream.launch_blocks(&ScanTileSums { values, n, sums }, n.div_ceil(TILE), THREADS)?;
        }
        stream.launch_blocks(
            &ScanExclusive { values, n, sums, output: values, total },
            n / TILE + 1,
            THREADS,
        )?;
        let total = stream.number_at(total)?;
        let fits = i32::try_from(total).is_ok_and(|total| total >= 0);
        if fits {
            Ok(total)
        } else {
            Err(Error::Value(format!("{total} in all: more than 31 bits can count")))
        }
    }
}
