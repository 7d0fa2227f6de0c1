//! Memory: its storage ([`store`]), its addresses ([`space`]), and its access rights ([`map`]).
//!
//! A device address is an address of this process, so that kernels compiled for the CPU can use it.
//! The check that a device makes in its page tables is made twice here: copies and memsets ask the
//! [`map::AddressMap`] before they access a byte, and kernels fault on `mprotect`.

mod ledger;
pub(crate) mod map;
pub(crate) mod space;
pub(crate) mod store;

use std::sync::Arc;

use wm_abi::CUresult;

use crate::entry::{Outcome, require};
use crate::state::driver;

pub(crate) use map::{AddressMap, Area, Mapping, Owner, Rights, Want};
pub(crate) use store::{Budget, Physical, Place};

/// Bytes of a page of this machine: the unit of plain allocations.
pub(crate) const PAGE: u64 = 4096;
/// Unit of physical memory and mappings of the virtual-memory calls, as on every GPU so far.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// Rounds up to a multiple of a power of two; `None` on overflow.
pub(crate) fn round_up(bytes: u64, unit: u64) -> Option<u64> {
    Some(bytes.checked_add(unit - 1)? & !(unit - 1))
}

/// Allocates memory of a place and maps it at a free address, with all rights for all devices and
/// an inaccessible page behind it.
///
/// # Errors
/// `INVALID_VALUE` for 0 bytes, `OUT_OF_MEMORY` if the place is full.
pub(crate) fn allocate(place: Place, bytes: u64) -> Outcome<Block> {
    require(bytes > 0, CUresult::INVALID_VALUE)?;
    let rounded = round_up(bytes, PAGE).ok_or(CUresult::OUT_OF_MEMORY)?;
    let physical = driver().cut(place, rounded)?;
    Block::place(physical)
}

/// Memory that is mapped as a whole.
#[derive(Debug)]
pub(crate) struct Block {
    /// First address.
    pub(crate) start: u64,
    /// Bytes of address space, with the guard page.
    pub(crate) span: u64,
    /// The memory there.
    pub(crate) physical: Arc<Physical>,
}

impl Block {
    /// Maps memory at an address of our choice.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if there is no address space.
    pub(crate) fn place(physical: Arc<Physical>) -> Outcome<Self> {
        let span = physical.size.checked_add(PAGE).ok_or(CUresult::OUT_OF_MEMORY)?;
        let alignment = if physical.size >= GRANULARITY { GRANULARITY } else { PAGE };
        let start = space::reserve(span, alignment, 0)?;
        if let Err(error) = physical.map(start, space::Protection::ReadWrite) {
            space::release(start, span);
            return Err(error);
        }
        Ok(Self { start, span, physical })
    }

    /// Adds the block to the address map as an area of `size` bytes.
    pub(crate) fn enter(self, size: u64, owner: impl FnOnce(Arc<Physical>) -> Owner) -> u64 {
        let Self { start, span, physical } = self;
        let area =
            Area { start, size, span, id: store::unique(), sync_memops: false, owner: owner(physical) };
        driver().memory_mut().insert(area);
        start
    }
}
