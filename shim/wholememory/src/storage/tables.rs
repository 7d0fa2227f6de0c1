//! The addresses of the ranks' parts, in memory of a rank's own GPU: kernels read them there.

use wm_driver::Api;
use wm_driver::api::Named;
use wm_driver::api::scope::{Current, Relaxed};

use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::storage::layout::StorageLayout;
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

/// The tables' memory on this rank's GPU.
#[derive(Debug)]
pub struct Tables {
    communicator: Option<(Named<'static>, wm_abi::CUcontext)>,
    places: DeviceTables,
}

impl Tables {
    /// Makes them for this rank.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(
        communicator: &Communicator,
        layout: &StorageLayout,
        partition: &Partition,
        row: u64,
        base: u64,
    ) -> Result<Self> {
        let driver = communicator.driver();
        let bases = layout.parts.iter().map(|part| base + part);
        let starts = partition.starts().iter().copied();
        let words: Vec<u64> = bases.chain(starts.clone()).chain(starts.map(|start| start * row)).collect();
        let _current =
            Current::make(driver.0, communicator.context()).map_err(|code| Error::Cuda(code.to_string()))?;
        let _relaxed = Relaxed::always(driver.0);
        let address = driver.mem_alloc(size_of_val(&*words))?;
        let word = size_of::<u64>() as u64;
        let starts = address + layout.parts.len() as u64 * word;
        let offsets = starts + partition.starts().len() as u64 * word;
        let places = DeviceTables { bases: address, starts, offsets };
        let tables = Self { communicator: Some((driver, communicator.context())), places };
        tables.write(&driver, &words)?;
        Ok(tables)
    }

    /// Their addresses.
    pub fn places(&self) -> DeviceTables {
        self.places
    }

    fn write(&self, driver: &Named<'static>, words: &[u64]) -> Result {
        // SAFETY: the memory was made for these words; the call returns when they have been read.
        Ok(unsafe { driver.memcpy_htod(self.places.bases, words.as_ptr().cast(), size_of_val(words)) }?)
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        let Some((driver, context)) = self.communicator else { return };
        let _current = Current::make(driver.0, context);
        let _relaxed = Relaxed::always(driver.0);
        let _ = driver.mem_free(self.places.bases);
    }
}
