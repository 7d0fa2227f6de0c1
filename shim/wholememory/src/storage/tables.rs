//! The places of the ranks' parts, in memory of a rank's own GPU: kernels read them there.

use wm_driver::Api;
use wm_driver::api::Named;
use wm_driver::api::scope::{Current, Relaxed};

use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::storage::layout::StorageLayout;
use crate::vocabulary::islands::Islands;
use crate::vocabulary::partition::Partition;

/// Arrays by which a kernel finds a row, in memory of the rank's own GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceTables {
    /// Address of each rank's part.
    pub bases: u64,
    /// First row of each part, and the number of all rows.
    pub starts: u64,
    /// The same in bytes.
    pub offsets: u64,
}

/// Arrays by which a kernel finds the island of a row, in memory of the rank's own GPU. All are of
/// 64-bit numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IslandTables {
    /// First row of each rank, and the number of all rows.
    pub starts: u64,
    /// The island of each rank.
    pub islands: u64,
    /// The number of each rank's first row among the rows of its island.
    pub firsts: u64,
}

/// Words in memory of this rank's GPU.
#[derive(Debug)]
pub(super) struct DeviceWords {
    driver: Named<'static>,
    context: wm_abi::CUcontext,
    address: u64,
}

impl DeviceWords {
    /// These words.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn new(communicator: &Communicator, words: &[u64]) -> Result<Self> {
        let (driver, context) = (communicator.driver(), communicator.context());
        let _current = Current::make(driver.0, context).map_err(|code| Error::Cuda(code.to_string()))?;
        let _relaxed = Relaxed::always(driver.0);
        let made = Self { driver, context, address: driver.mem_alloc(size_of_val(words))? };
        // SAFETY: the memory was made for these words; the call returns when they have been read.
        unsafe { driver.memcpy_htod(made.address, words.as_ptr().cast(), size_of_val(words)) }?;
        Ok(made)
    }

    /// The address of the first one.
    pub(super) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for DeviceWords {
    fn drop(&mut self) {
        let _current = Current::make(self.driver.0, self.context);
        let _relaxed = Relaxed::always(self.driver.0);
        let _ = self.driver.mem_free(self.address);
    }
}

/// The tables' memory on this rank's GPU.
#[derive(Debug)]
pub struct Tables {
    _words: DeviceWords,
    places: DeviceTables,
    islands: IslandTables,
}

impl Tables {
    /// Makes them for this rank. `part` are the rows of the members of its island, whose parts the
    /// layout has from `base` on; `whole` are those of all ranks.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(
        communicator: &Communicator,
        (layout, part, base): (&StorageLayout, &Partition, u64),
        (islands, whole): (&Islands, &Partition),
        row: u64,
    ) -> Result<Self> {
        let starts = part.starts().iter().copied();
        let first_of = |rank: usize| {
            let before = islands.members(islands.of(rank)).iter().take(islands.number(rank));
            before.map(|other| whole.count(*other)).sum::<u64>()
        };
        let ranks = 0..whole.ranks();
        let arrays = [
            layout.parts.iter().map(|part| base + part).collect::<Vec<_>>(),
            starts.clone().collect(),
            starts.map(|start| start * row).collect(),
            whole.starts().to_vec(),
            ranks.clone().map(|rank| islands.of(rank) as u64).collect(),
            ranks.map(first_of).collect(),
        ];
        let words = DeviceWords::new(communicator, &arrays.concat())?;
        let mut next = words.address();
        let [bases, starts, offsets, all_starts, islands, firsts] = arrays.each_ref().map(|array| {
            let place = next;
            next += size_of_val(&**array) as u64;
            place
        });
        let (places, islands) =
            (DeviceTables { bases, starts, offsets }, IslandTables { starts: all_starts, islands, firsts });
        Ok(Self { _words: words, places, islands })
    }

    /// The places of parts.
    pub fn places(&self) -> DeviceTables {
        self.places
    }

    /// The islands of rows.
    pub fn islands(&self) -> IslandTables {
        self.islands
    }
}
