//! The memory of a copy's two ends, which tells the copy's direction.
//!
//! The driver is asked two questions an end at most (about a microsecond each, for large copies
//! only), and none about our blocks. Each answer is about a whole range. Only plain memory can be
//! relayed: managed memory moves by itself, a host range that is pinned in part has pages that the
//! devices do not reach, and a copy to another device's memory does not cross a host link.

use std::ops::Range;

use wm_abi::{CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CUdevice};
use wm_driver::Api;
use wm_driver::api::PointerAttribute;
use wm_multipath::{HostMemory, LinkDirection};

use crate::addresses::AddressedMemory;
use crate::copies::{CopyEnd, EndKind, LinearCopy};
use crate::process::driver;

/// Plain memory of one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SideMemory {
    Host(HostMemory),
    Device(CUdevice),
}

/// The direction of a copy, and the kind of its host memory. `None`: the copy is not between the
/// host and `device`, not as its call says, or not of plain memory.
pub(super) fn host_and_device(copy: &LinearCopy, device: CUdevice) -> Option<(LinkDirection, HostMemory)> {
    let to = as_called(&copy.to, copy.bytes)?;
    let from = as_called(&copy.from, copy.bytes)?;
    match (to, from) {
        (SideMemory::Device(on), SideMemory::Host(memory)) if on == device => {
            Some((LinkDirection::In, memory))
        }
        (SideMemory::Host(memory), SideMemory::Device(on)) if on == device => {
            Some((LinkDirection::Out, memory))
        }
        _ => None,
    }
}

/// An end's memory, if it is of the kind that the call says.
fn as_called(end: &CopyEnd, bytes: usize) -> Option<SideMemory> {
    let memory = memory(end, bytes)?;
    let is_as_called = match end.kind {
        EndKind::Host => matches!(memory, SideMemory::Host(_)),
        EndKind::Device => matches!(memory, SideMemory::Device(_)),
        EndKind::Unified => true,
    };
    is_as_called.then_some(memory)
}

/// An end's memory. `None`: it is not of one kind from its first byte to its last, or not plain. If
/// a range runs past the end of its memory, the driver has to refuse the copy before a byte is
/// copied.
fn memory(first: &CopyEnd, bytes: usize) -> Option<SideMemory> {
    let address = first.address();
    let end = address.checked_add(bytes as u64)?;
    match first.memory() {
        AddressedMemory::Block(manager, block) => {
            let is_inside = end <= block.address + block.bytes as u64;
            // A relay's engine is another device's: it crashes if a copy touches two tiers.
            let is_whole = block.tiers.elsewhere() == 0 || manager.borders(address..end).is_empty();
            (is_inside && is_whole).then(|| SideMemory::Device(manager.gpu().ordinal()))
        }
        // Host memory that only its device may access: it passes for the device memory that the
        // program asked for.
        AddressedMemory::Displaced(piece) => {
            (end <= piece.base + piece.bytes).then_some(SideMemory::Device(piece.asked.device))
        }
        AddressedMemory::Opened(..) | AddressedMemory::Vacant(_) => None,
        AddressedMemory::Foreign => foreign(address, end),
    }
}

/// The memory of a range that only the driver knows.
fn foreign(address: u64, end: u64) -> Option<SideMemory> {
    let first = ask(address)?;
    match first {
        // Threads of ours copy it; it has no end that the driver would know.
        SideMemory::Host(HostMemory::Pageable) => ask(end - 1).filter(|last| *last == first),
        _ => reaches(address, end, first).then_some(first),
    }
}

/// Most ranges that an end may consist of. A program's own mappings can be small and many.
const RANGES: usize = 1024;

/// Is all memory up to `end` of one kind? Several ranges may follow each other without a gap.
fn reaches(mut address: u64, end: u64, kind: SideMemory) -> bool {
    for _ in 0..RANGES {
        let Some(range) = range(address).filter(|range| range.contains(&address)) else { return false };
        if range.end >= end {
            return true;
        }
        address = range.end;
        if ask(address) != Some(kind) {
            return false;
        }
    }
    false
}

/// The allocation that the driver knows an address in.
fn range(address: u64) -> Option<Range<u64>> {
    let wanted = [PointerAttribute::RANGE_START_ADDR, PointerAttribute::RANGE_SIZE];
    let [start, size] = driver().pointer_attributes(wanted, address).ok()?;
    Some(start..start.checked_add(size)?)
}

/// The driver's answer for an address. An address that the driver does not know is pageable memory,
/// and has no other attribute to ask for. `None`: managed memory, or memory whose copies are
/// synchronous.
fn ask(address: u64) -> Option<SideMemory> {
    let wanted =
        [PointerAttribute::MEMORY_TYPE, PointerAttribute::IS_MANAGED, PointerAttribute::DEVICE_ORDINAL];
    let [kind, managed, ordinal] = driver().pointer_attributes(wanted, address).ok()?;
    if managed != 0 {
        return None;
    }
    if kind == 0 {
        return Some(SideMemory::Host(HostMemory::Pageable));
    }
    let [synchronous] = driver().pointer_attributes([PointerAttribute::SYNC_MEMOPS], address).ok()?;
    match kind {
        _ if synchronous != 0 => None,
        CU_MEMORYTYPE_HOST => Some(SideMemory::Host(HostMemory::Pinned)),
        CU_MEMORYTYPE_DEVICE => Some(SideMemory::Device(ordinal as CUdevice)),
        _ => None,
    }
}
