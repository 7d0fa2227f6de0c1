//! The bytes behind a memory: on the ranks' GPUs, or in memory of the host, mapped at every rank.
//!
//! Each rank maps the physical memory of all ranks of its island, so an operation reaches every row
//! there by an address. Ranks here are the members of one island, by their numbers in it: all
//! ranks, where there is one island. Making storage is a collective call; its release is not: a
//! rank's physical memory lives until the last rank that maps it has unmapped it.
//!
//! * [`layout`]: the places of pieces and parts. * [`tables`]: the same for kernels. * [`device`]:
//!   physical memory of GPUs, shared by descriptors. * [`host`]: files without a name. *
//!   [`landing`]: where rows of other islands arrive for all ranks of one.

pub mod device;
pub mod host;
#[allow(unsafe_code, reason = "a fill of memory of the device")]
pub mod landing;
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

    /// Makes storage of an island's members and maps all of it. A collective call of the ranks of
    /// all islands.
    ///
    /// # Errors
    /// The same on every rank, with nothing left behind.
    pub fn new(
        communicator: &Communicator,
        members: &[usize],
        location: Location,
        layout: &StorageLayout,
    ) -> Result<Self> {
        match location {
            Location::Device => device::DeviceStorage::new(communicator, members, layout).map(Self::Device),
            Location::Host => host::HostStorage::new(communicator, members, layout).map(Self::Host),
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
