//! The two ends of a copy: what memory they are, and thereby which way the copy goes.
//!
//! A question or two to the driver an end (about a microsecond each, for large copies only). Blocks of ours are known without.
//! Each question is about a whole range. Only plain memory is ours to relay: managed memory moves by itself, a host range that is pinned in part has pages
//! that the devices do not reach, and memory of another device than the context's takes a way of its own.

use std::ffi::{c_uint, c_void};
use std::ops::Range;

use wm_abi::symbol;
use wm_abi::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUdevice,
};
use wm_multipath::{Direction, HostMemory};

use super::linear::Linear;
use crate::process::driver;
use crate::{physical, registry};

/// One end of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    Host(HostMemory),
    Device(CUdevice),
}

/// Which way a copy goes, and what its host end is. `None`: not between the host and `device`, or not plain.
pub(super) fn examine(linear: &Linear, device: CUdevice) -> Option<(Direction, HostMemory)> {
    let to = memory(linear.to, linear.bytes)?;
    let from = memory(linear.from, linear.bytes)?;
    match (to, from) {
        (Memory::Device(on), Memory::Host(memory)) if on == device => Some((Direction::In, memory)),
        (Memory::Host(memory), Memory::Device(on)) if on == device => Some((Direction::Out, memory)),
        _ => None,
    }
}

/// What a range is. `None`: not one thing from its first byte to its last, or not plain. A range that does not end where its memory
/// does is the driver's to refuse, before a byte is copied.
fn memory(address: u64, bytes: usize) -> Option<Memory> {
    let end = address.checked_add(bytes as u64)?;
    if let Some(manager) = registry::owner(address) {
        let block = manager.block(address).filter(|block| end <= block.address + block.bytes as u64)?;
        // A relay's engine is another device's: it crashes where a copy meets two tiers.
        let is_whole = block.tiers.elsewhere() == 0 || manager.borders(address..end).is_empty();
        return is_whole.then(|| Memory::Device(manager.gpu().ordinal()));
    }
    // What stands in for device memory is none of the host's: nobody but its device has access to it.
    if let Some(view) = physical::elsewhere(address) {
        return (end <= view.base + view.bytes).then_some(Memory::Device(view.device));
    }
    let first = ask(address)?;
    match first {
        // Threads of ours copy it; it has no end that the driver would know.
        Memory::Host(HostMemory::Pageable) => ask(end - 1).filter(|last| *last == first),
        _ => reaches(address, end, first).then_some(first),
    }
}

/// Ranges that a copy may touch: a program's own mappings can be many.
const RANGES: usize = 1024;

/// Is all memory up to `end` of one kind? Several ranges may follow each other without a gap.
fn reaches(mut address: u64, end: u64, kind: Memory) -> bool {
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
    let (mut start, mut size) = (0_u64, 0_usize);
    let mut wanted = [CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE];
    let mut places = [(&raw mut start).cast::<c_void>(), (&raw mut size).cast()];
    let query = driver().get::<symbol::cuPointerGetAttributes>();
    // SAFETY: two attributes of eight bytes, each with a place of its size.
    unsafe { query(2, wanted.as_mut_ptr(), places.as_mut_ptr(), address) }.ok().ok()?;
    Some(start..start.checked_add(size as u64)?)
}

/// What the driver says of an address. Of one that it does not know, nothing: ordinary memory, which has no other attribute to
/// ask for.
fn ask(address: u64) -> Option<Memory> {
    let [kind, managed, ordinal] = attributes(
        address,
        [
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            CU_POINTER_ATTRIBUTE_IS_MANAGED,
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        ],
    )?;
    if managed != 0 {
        return None;
    }
    if kind == 0 {
        return Some(Memory::Host(HostMemory::Pageable));
    }
    let [synchronous] = attributes(address, [CU_POINTER_ATTRIBUTE_SYNC_MEMOPS])?;
    match kind {
        _ if synchronous != 0 => None,
        CU_MEMORYTYPE_HOST => Some(Memory::Host(HostMemory::Pinned)),
        CU_MEMORYTYPE_DEVICE => Some(Memory::Device(ordinal as CUdevice)),
        _ => None,
    }
}

/// Attributes of a pointer whose values are words of four bytes.
fn attributes<const N: usize>(address: u64, mut wanted: [c_uint; N]) -> Option<[c_uint; N]> {
    let mut values: [c_uint; N] = [0; N];
    let mut places = values.each_mut().map(|value| std::ptr::from_mut(value).cast::<c_void>());
    let query = driver().get::<symbol::cuPointerGetAttributes>();
    // SAFETY: as many attributes as places, each place of its attribute's size, all live locals.
    unsafe { query(N as c_uint, wanted.as_mut_ptr(), places.as_mut_ptr(), address) }.ok().ok()?;
    Some(values)
}
