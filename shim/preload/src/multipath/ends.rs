//! The two ends of a copy: what memory they are, and thereby which way the copy goes.
//!
//! A question or two to the driver an end (about a microsecond each, for large copies only). Blocks of ours are known without.
//! Each question is about a whole range. Only plain memory is ours to relay: managed memory moves by itself, a host range that is pinned in part has pages
//! that the devices do not reach, and memory of another device than the context's takes a way of its own.

use std::ops::Range;

use wm_abi::{CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CUdevice};
use wm_driver::Api;
use wm_driver::api::PointerAttribute;
use wm_multipath::{HostMemory, LinkDirection};

use super::linear::Linear;
use crate::process::driver;
use crate::{physical, registry};

/// One end of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SideMemory {
    Host(HostMemory),
    Device(CUdevice),
}

/// Which way a copy goes, and what its host end is. `None`: not between the host and `device`, or not plain.
pub(super) fn examine(linear: &Linear, device: CUdevice) -> Option<(LinkDirection, HostMemory)> {
    let to = memory(linear.to, linear.bytes)?;
    let from = memory(linear.from, linear.bytes)?;
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

/// What a range is. `None`: not one thing from its first byte to its last, or not plain. A range that does not end where its memory
/// does is the driver's to refuse, before a byte is copied.
fn memory(address: u64, bytes: usize) -> Option<SideMemory> {
    let end = address.checked_add(bytes as u64)?;
    if let Some(manager) = registry::owner(address) {
        let block = manager.block(address).filter(|block| end <= block.address + block.bytes as u64)?;
        // A relay's engine is another device's: it crashes where a copy meets two tiers.
        let is_whole = block.tiers.elsewhere() == 0 || manager.borders(address..end).is_empty();
        return is_whole.then(|| SideMemory::Device(manager.gpu().ordinal()));
    }
    // What stands in for device memory is none of the host's: nobody but its device has access to it.
    if let Some(view) = physical::elsewhere(address) {
        return (end <= view.base + view.bytes).then_some(SideMemory::Device(view.device));
    }
    let first = ask(address)?;
    match first {
        // Threads of ours copy it; it has no end that the driver would know.
        SideMemory::Host(HostMemory::Pageable) => ask(end - 1).filter(|last| *last == first),
        _ => reaches(address, end, first).then_some(first),
    }
}

/// Ranges that a copy may touch: a program's own mappings can be many.
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

/// The range that the driver knows an address in.
fn range(address: u64) -> Option<Range<u64>> {
    let wanted = [PointerAttribute::RANGE_START_ADDR, PointerAttribute::RANGE_SIZE];
    let [start, size] = driver().pointer_attributes(wanted, address).ok()?;
    Some(start..start.checked_add(size)?)
}

/// What the driver says of an address. Of one that it does not know, nothing: ordinary memory, which has no other attribute to
/// ask for.
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
