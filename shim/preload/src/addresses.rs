//! The memory that an address lies in, as far as this process knows: one look-up for queries about
//! pointers and for the ends of copies.

use wm_driver::Device;
use wm_memory::{Block, Manager};

use crate::ipc::OpenedBlock;
use crate::physical::{self, MappedPiece};
use crate::registry;
use crate::subsystems::PROCESS;

/// The memory that an address lies in.
#[derive(Clone, Copy)]
pub(crate) enum AddressedMemory {
    /// A live block of this manager.
    Block(&'static Manager<Device>, Block),
    /// A block that another process exported and this one opened. It is mapped in this manager's
    /// reservation.
    Opened(&'static Manager<Device>, OpenedBlock),
    /// A reservation of this manager, where no block lives now.
    Vacant(&'static Manager<Device>),
    /// Physical memory that the program made itself, which is not on the device that it was asked
    /// for.
    Displaced(MappedPiece),
    /// None of the above: only the driver knows.
    Foreign,
}

/// Looks an address up. Takes no lock for a block; one for an opened block, and one once a piece is
/// displaced.
pub(crate) fn memory_at(address: u64) -> AddressedMemory {
    let Some(manager) = registry::owner(address) else {
        return physical::elsewhere(address).map_or(AddressedMemory::Foreign, AddressedMemory::Displaced);
    };
    match manager.block(address) {
        Some(block) => AddressedMemory::Block(manager, block),
        None => PROCESS
            .ipc
            .view(address)
            .map_or(AddressedMemory::Vacant(manager), |opened| AddressedMemory::Opened(manager, opened)),
    }
}

impl AddressedMemory {
    /// The manager whose reservation the address lies in.
    pub(crate) fn manager(&self) -> Option<&'static Manager<Device>> {
        match self {
            Self::Block(manager, _) | Self::Opened(manager, _) | Self::Vacant(manager) => Some(manager),
            Self::Displaced(_) | Self::Foreign => None,
        }
    }
}
