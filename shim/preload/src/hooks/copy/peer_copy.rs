//! Copies that touch another device's memory: whether the program's call can be forwarded, and the
//! calls in its place if it cannot.
//!
//! The driver copies its own memory between devices without preparation. Our blocks are mapped
//! memory, which differs in three ways:
//! * A device copies mapped memory only if it has access to it. Access is granted before the call
//!   is made.
//! * If a device cannot have access, the copy is made between the contexts of the two owners (a
//!   *detour*), which needs none.
//! * NVIDIA's driver crashes if one copy between devices touches two tiers. Such a copy is made in
//!   parts.
//!
//! In a process with one device no end is looked up. With several, each end is looked up once
//! ([`CopyEnd::memory`]).

use std::ops::Range;

use wm_abi::{CUcontext, CUdevice, CUstream};
use wm_driver::api::PointerAttribute;
use wm_driver::api::scope::Current;
use wm_driver::{Api, Gpu};

use super::cut::{CopyPart, cut};
use crate::addresses::AddressedMemory;
use crate::copies::{CopyEnd, CopySize};
use crate::hooks::call::stream::{Legacy, is_captured};
use crate::hooks::memory::peer_access;
use crate::physical;
use crate::process::driver;
use crate::registry;

/// Destination and source of a copy; `None` for an end that cannot be device memory.
pub(in crate::hooks) type DeviceEnds<'a> = [Option<&'a CopyEnd>; 2];

/// A copy that cannot be forwarded, as the calls that make it instead.
#[derive(Debug)]
pub(in crate::hooks) struct PeerCopy {
    pub(in crate::hooks) parts: Vec<CopyPart>,
    /// Between the owners' contexts, because the device that would make the copy cannot access an
    /// end.
    pub(in crate::hooks) detour: bool,
}

/// Plans a copy in a stream of the calling thread's context. `None` if the call can be forwarded.
pub(in crate::hooks) fn plan(ends: DeviceEnds<'_>, size: &CopySize, stream: CUstream) -> Option<PeerCopy> {
    if !may_touch_a_peer(ends) || size.contains(&0) {
        return None;
    }
    let detour = !is_reachable_in(ends, stream) && !forbids_detour(stream);
    needed(parts(ends, size), detour, size)
}

/// As [`plan`], for a description that names the contexts of both ends. Such a copy needs no
/// access.
pub(in crate::hooks) fn plan_between_contexts(ends: DeviceEnds<'_>, size: &CopySize) -> Option<PeerCopy> {
    may_touch_a_peer(ends).then(|| needed(parts(ends, size), false, size)).flatten()
}

/// Plans `cuMemcpyPeer`. `stream` is `None` for the form that waits.
///
/// That function crashes in the driver (580) if an end is host memory that only its device may
/// access, in one tier or several. The form with a description does not crash, but cannot be
/// captured. The form by addresses can be captured, but needs access to both ends.
pub(in crate::hooks) fn plan_between_peers(
    ends: DeviceEnds<'_>,
    size: &CopySize,
    stream: Option<CUstream>,
) -> Option<PeerCopy> {
    if !may_touch_a_peer(ends) || !ends.iter().flatten().any(|end| is_elsewhere(end, size)) {
        return None;
    }
    let can_be_by_address = |stream| forbids_detour(stream) && is_reachable_in(ends, stream);
    let detour = !stream.is_some_and(can_be_by_address);
    Some(PeerCopy { parts: parts(ends, size).unwrap_or_else(|| vec![CopyPart::whole(*size)]), detour })
}

fn needed(parts: Option<Vec<CopyPart>>, detour: bool, size: &CopySize) -> Option<PeerCopy> {
    (detour || parts.is_some()).then(|| {
        let parts = parts.unwrap_or_else(|| vec![CopyPart::whole(*size)]);
        PeerCopy { parts, detour }
    })
}

/// Does an end lie in memory that we know, whose owner may be another device?
fn may_touch_a_peer(ends: DeviceEnds<'_>) -> bool {
    let is_ours = |end: &&CopyEnd| end.memory().manager().is_some();
    peer_access::has_several_devices() && (ends.iter().flatten().any(is_ours) || physical::is_any_elsewhere())
}

/// As [`make_reachable`], for the stream's device too, because that device makes the copy.
fn is_reachable_in(ends: DeviceEnds<'_>, stream: CUstream) -> bool {
    let there = other_context(stream).and_then(|context| with_context(context, || make_reachable(ends)));
    make_reachable(ends) & there.unwrap_or(true)
}

/// Grants the calling thread's device access to both ends. `false` if it cannot have access to one
/// of them.
fn make_reachable(ends: DeviceEnds<'_>) -> bool {
    let owners = ends.iter().flatten().filter_map(|end| end.memory().manager());
    owners.filter(|owner| !peer_access::make_reachable(owner)).count() == 0
}

/// The context of a stream, if it is not the calling thread's.
fn other_context(stream: CUstream) -> Option<CUcontext> {
    if matches!(stream, CUstream::NULL | CUstream::LEGACY | CUstream::PER_THREAD) {
        return None;
    }
    registry::context_of_stream(stream).filter(|context| driver().ctx_current() != Ok(*context))
}

/// Runs `body` with a context current; a null context leaves the current one. `None` if it cannot
/// be made current.
pub(in crate::hooks) fn with_context<T>(context: CUcontext, body: impl FnOnce() -> T) -> Option<T> {
    let _current = (!context.is_null()).then(|| Current::make(driver(), context)).transpose().ok()?;
    Some(body())
}

/// The driver (580) cannot capture a copy between contexts. In a captured stream the program's own
/// call is forwarded, and gets the driver's error.
fn forbids_detour(stream: CUstream) -> bool {
    let is_legacy = matches!(stream, CUstream::NULL | CUstream::LEGACY);
    !is_legacy && is_captured::<Legacy>(stream)
}

/// The parts of a copy that touches more than one tier. Within a device one call would do; but the
/// stream may be another device's, and a call more costs little.
fn parts(ends: DeviceEnds<'_>, size: &CopySize) -> Option<Vec<CopyPart>> {
    let ends: Vec<_> = ends.iter().flatten().map(|end| (end.bytes, borders(end, size))).collect();
    if ends.iter().all(|(_, borders)| borders.is_empty()) {
        return None;
    }
    Some(cut(*size, &ends)).filter(|parts| parts.len() > 1)
}

/// The addresses in an end's range at which another tier begins.
fn borders(end: &CopyEnd, size: &CopySize) -> Vec<u64> {
    match end.memory() {
        AddressedMemory::Block(_, block) if block.tiers.elsewhere() == 0 => Vec::new(),
        AddressedMemory::Block(manager, _) => manager.borders(end.range(size)),
        AddressedMemory::Opened(manager, _) => {
            driver_borders(end.range(size), manager.gpu().granularity() as u64)
        }
        AddressedMemory::Vacant(_) => Vec::new(),
        AddressedMemory::Displaced(_) | AddressedMemory::Foreign => physical::borders(end.range(size)),
    }
}

/// The addresses at which the driver's answers about a range change: of another process's memory we
/// know no more. Handles begin at multiples of `granularity` bytes.
fn driver_borders(range: Range<u64>, granularity: u64) -> Vec<u64> {
    let answers = |at| {
        let kind = driver().pointer_attribute(PointerAttribute::MEMORY_TYPE, at);
        (kind, driver().pointer_attribute(PointerAttribute::DEVICE_ORDINAL, at))
    };
    let mut before = answers(range.start);
    let starts = (range.start / granularity + 1..).map(|number| number * granularity);
    let changes = |at: &u64| {
        let now = answers(*at);
        std::mem::replace(&mut before, now) != now
    };
    starts.take_while(|at| *at < range.end).filter(changes).collect()
}

/// Does a part of this end lie elsewhere than on its device? Of an opened block that is not known,
/// and assumed.
fn is_elsewhere(end: &CopyEnd, size: &CopySize) -> bool {
    match end.memory() {
        AddressedMemory::Block(_, block) => block.tiers.elsewhere() > 0,
        AddressedMemory::Opened(..) | AddressedMemory::Displaced(_) => true,
        AddressedMemory::Vacant(_) => false,
        AddressedMemory::Foreign => !borders(end, size).is_empty(),
    }
}

/// Do all ends that have an address lie in memory that is known to be the calling thread's
/// device's?
pub(in crate::hooks) fn is_within_a_device(ends: DeviceEnds<'_>) -> bool {
    let here = registry::current_device();
    ends.iter().flatten().all(|end| owning_device(end) == here && here.is_some())
}

/// The device whose memory an end lies in: by our books, else by the driver's answer.
fn owning_device(end: &CopyEnd) -> Option<CUdevice> {
    let ours = end.memory().manager().map(|manager| manager.gpu().ordinal());
    ours.or_else(|| {
        let ordinal = driver().pointer_attribute(PointerAttribute::DEVICE_ORDINAL, end.address());
        ordinal.ok().map(|ordinal| ordinal as CUdevice)
    })
}

/// The context to name for an end of a copy between contexts. `None` is an end without an address
/// on a device.
pub(super) fn owning_context(end: Option<&CopyEnd>) -> CUcontext {
    let current = || driver().ctx_current().unwrap_or_default();
    let Some(end) = end else { return current() };
    if let Some(manager) = end.memory().manager() {
        return manager.gpu().context();
    }
    let told = driver().pointer_attribute(PointerAttribute::CONTEXT, end.address());
    let of_device = || registry::existing(owning_device(end)?).map(|manager| manager.gpu().context());
    told.ok().filter(|told| !told.is_null()).or_else(of_device).unwrap_or_else(current)
}
