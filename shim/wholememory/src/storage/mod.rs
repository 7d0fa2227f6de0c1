//! The bytes behind a memory: on the ranks' GPUs, or in memory of the host, mapped at every rank.
//!
//! All ranks are on one machine: each maps the physical memory of the others, so an operation
//! reaches every row by an address. Making storage is a collective call; its release is not: a
//! rank's physical memory lives until the last rank that maps it has unmapped it.
//!
//! * [`layout`]: the places of pieces and parts. * [`tables`]: the same for kernels. * [`device`]:
//!   physical memory of GPUs, shared by descriptors. * [`host`]: files without a name.

pub mod device;
pub mod host;
pub mod layout;
#[allow(unsafe_code, reason = "addresses of this process")]
mod mapping;
#[allow(unsafe_code, reason = "a copy to memory of the device")]
pub mod tables;

use crate::communicator::Communicator;
use crate::error::Result;
use crate::storage::layout::StorageLayout;
use crate::vocabulary::codes::Location;

/// Bytes that are mapped at this rank, wherever they lie.
#[derive(Debug)]
pub enum Storage {
    /// On GPUs.
    Device(device::DeviceStorage),
    /// In memory of the host.
    Host(host::HostStorage),
}

impl Storage {
    /// The smallest page at a location, for all ranks alike, bytes.
    ///
    /// # Errors
    /// The driver's.
    pub fn page(communicator: &Communicator, location: Location) -> Result<u64> {
        match location {
            Location::Device => device::page(communicator),
            Location::Host => Ok(host::PAGE),
        }
    }

    /// Makes storage and maps all of it. A collective call.
    ///
    /// # Errors
    /// The same on every rank, with nothing left behind.
    pub fn new(communicator: &Communicator, location: Location, layout: &StorageLayout) -> Result<Self> {
        match location {
            Location::Device => device::DeviceStorage::new(communicator, layout).map(Self::Device),
            Location::Host => host::HostStorage::new(communicator, layout).map(Self::Host),
        }
    }

    /// Address of the first byte; 0 where there is none. It is the same for the host and for the
    /// device where both can use it.
    pub fn base(&self) -> u64 {
        match self {
            Self::Device(storage) => storage.base(),
            Self::Host(storage) => storage.base(),
        }
    }
}
