//! Copies that touch another device's memory.
//!
//! The driver copies its own memory between devices without further ado. Our blocks are mapped memory, which differs in three ways:
//! * A device copies mapped memory only if it has access to it: we grant access before the call is made.
//! * If a device cannot have access, the copy is made between the contexts of the two owners (a *detour*), which needs none.
//! * NVIDIA's driver crashes if one copy between devices touches two tiers: such a copy is made in parts.
//!
//! In a process with one device nothing is done, and no description is read. With several, a copy costs a look-up of each end's owner.

use std::ops::Range;

use wm_abi::symbol::{self, Symbol};
use wm_abi::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CUDA_MEMCPY3D_PEER, CUcontext, CUdevice, CUdeviceptr, CUresult,
    CUstream,
};
use wm_driver::api::PointerAttribute;
use wm_driver::api::scope::Current;
use wm_driver::{Api, Gpu};

use super::cut::{CopyEnd, CopyPart, CopySize, cut};
use super::volume::{self, Description};
use crate::counters::Direction;
use crate::hooks::call::boundary::Outcome;
use crate::hooks::call::stream::{DefaultStream, Legacy, PerThread, is_captured};
use crate::hooks::memory::peer_access;
use crate::multipath::Linear;
use crate::process::driver;
use crate::{ipc, physical, registry};

/// Longest row of a copy between contexts, bytes: the driver documents no limit, and this much works.
const ROW: u64 = 1 << 30;

/// The synchronous functions of one family of entry points.
pub(in crate::hooks) trait Family: DefaultStream {
    /// A copy between two addresses.
    type Flat: Symbol<Function = unsafe extern "C" fn(CUdeviceptr, CUdeviceptr, usize) -> CUresult>;
    /// A copy between two contexts.
    type Between: Symbol<Function = unsafe extern "C" fn(*const CUDA_MEMCPY3D_PEER) -> CUresult>;
}

impl Family for Legacy {
    type Flat = symbol::cuMemcpy;
    type Between = symbol::cuMemcpy3DPeer;
}

impl Family for PerThread {
    type Flat = symbol::cuMemcpy_ptds;
    type Between = symbol::cuMemcpy3DPeer_ptds;
}

/// A copy that cannot be forwarded, as the calls that make it instead.
#[derive(Debug)]
pub(in crate::hooks) struct PeerCopy {
    pub(in crate::hooks) parts: Vec<CopyPart>,
    /// Between the owners' contexts, because the device that would make the copy cannot access an end.
    pub(in crate::hooks) detour: bool,
}

/// A copy in a stream of the calling thread's context; `None` if it can be forwarded.
pub(in crate::hooks) fn peer_copy(
    ends: &[Option<CopyEnd>; 2],
    size: &CopySize,
    stream: CUstream,
) -> Option<PeerCopy> {
    if !concerns(ends) || size.contains(&0) {
        return None;
    }
    let detour = !reach_in(ends, stream) && !takes_no_detour(stream);
    taken(parts(ends, size), detour, size)
}

/// As [`reach`], for the device of the stream too, because that device makes the copy.
fn reach_in(ends: &[Option<CopyEnd>; 2], stream: CUstream) -> bool {
    let there = context_elsewhere(stream).and_then(|context| within(context, || reach(ends)));
    reach(ends) & there.unwrap_or(true)
}

/// The driver (580) cannot capture a copy between contexts. The program's own call is forwarded then, and gets the driver's error.
fn takes_no_detour(stream: CUstream) -> bool {
    let is_legacy = matches!(stream, CUstream::NULL | CUstream::LEGACY);
    !is_legacy && is_captured::<Legacy>(stream)
}

/// Grants the calling thread's device access to both ends; `false` if it cannot have access to one.
fn reach(ends: &[Option<CopyEnd>; 2]) -> bool {
    let addresses = ends.iter().flatten().map(|end| end.address);
    addresses.filter(|address| !peer_access::make_reachable(*address)).count() == 0
}

/// The context of a stream, if it is not the calling thread's.
fn context_elsewhere(stream: CUstream) -> Option<CUcontext> {
    if matches!(stream, CUstream::NULL | CUstream::LEGACY | CUstream::PER_THREAD) {
        return None;
    }
    registry::context_of_stream(stream).filter(|context| driver().ctx_current() != Ok(*context))
}

/// Runs `body` with a context current; a null context leaves the current one. `None` if it cannot be made current.
pub(in crate::hooks) fn within<T>(context: CUcontext, body: impl FnOnce() -> T) -> Option<T> {
    let _current = (!context.is_null()).then(|| Current::make(driver(), context)).transpose().ok()?;
    Some(body())
}

/// As [`peer_copy`], for a copy that names the contexts of both ends and therefore needs no access.
pub(in crate::hooks) fn peer_copy_between(ends: &[Option<CopyEnd>; 2], size: &CopySize) -> Option<PeerCopy> {
    concerns(ends).then(|| taken(parts(ends, size), false, size)).flatten()
}

fn taken(parts: Option<Vec<CopyPart>>, detour: bool, size: &CopySize) -> Option<PeerCopy> {
    (detour || parts.is_some()).then(|| {
        let parts = parts.unwrap_or_else(|| vec![CopyPart::whole(*size)]);
        PeerCopy { parts, detour }
    })
}

/// Does the copy touch memory that we know, of which another device may be the owner?
fn concerns(ends: &[Option<CopyEnd>; 2]) -> bool {
    let ours = |end: &CopyEnd| registry::owner(end.address).is_some();
    peer_access::has_several_devices() && (ends.iter().flatten().any(ours) || physical::is_any_elsewhere())
}

/// The parts of a copy that touches more than one tier. Within a device one call would do; but the stream may be another device's, and
/// one call more costs little.
fn parts(ends: &[Option<CopyEnd>; 2], size: &CopySize) -> Option<Vec<CopyPart>> {
    let bordered = ends.map(|end| end.map_or_else(Vec::new, |end| borders(&end, size)));
    if bordered.iter().all(Vec::is_empty) {
        return None;
    }
    let ends: Vec<_> =
        ends.iter().zip(bordered).filter_map(|(end, borders)| Some(((*end)?, borders))).collect();
    Some(cut(*size, &ends)).filter(|parts| parts.len() > 1)
}

/// Where other tiers begin at an end.
fn borders(end: &CopyEnd, size: &CopySize) -> Vec<u64> {
    let Some(manager) = registry::owner(end.address) else { return physical::borders(end.range(size)) };
    match manager.block(end.address) {
        Some(block) if block.tiers.elsewhere() == 0 => Vec::new(),
        Some(_) => manager.borders(end.range(size)),
        None if ipc::view(end.address).is_some() => told(end.range(size), manager.gpu().granularity() as u64),
        None => Vec::new(),
    }
}

/// Where the driver's answers about a range change. This is all that we know about memory of another process. Handles begin at
/// multiples of `unit`.
fn told(range: Range<u64>, unit: u64) -> Vec<u64> {
    let what = |at| {
        let kind = driver().pointer_attribute(PointerAttribute::MEMORY_TYPE, at);
        (kind, driver().pointer_attribute(PointerAttribute::DEVICE_ORDINAL, at))
    };
    let mut before = what(range.start);
    let starts = (range.start / unit + 1..).map(|number| number * unit).take_while(|at| *at < range.end);
    let changes = |at: &u64| {
        let now = what(*at);
        std::mem::replace(&mut before, now) != now
    };
    starts.filter(changes).collect()
}

/// Do all ends that have an address lie in memory that is known to be the calling thread's device's?
pub(in crate::hooks) fn is_within_a_device(ends: &[Option<CopyEnd>; 2]) -> bool {
    let here = registry::current_device();
    ends.iter().flatten().all(|end| home(end.address) == here && here.is_some())
}

/// The device that an address belongs to: by our books, else by the driver's answer.
fn home(address: u64) -> Option<CUdevice> {
    let ours = registry::owner(address).map(|manager| manager.gpu().ordinal());
    ours.or_else(|| {
        let told = driver().pointer_attribute(PointerAttribute::DEVICE_ORDINAL, address);
        told.ok().map(|ordinal| ordinal as CUdevice)
    })
}

/// The context to name for an end of a copy between contexts.
fn context(end: Option<&CopyEnd>) -> CUcontext {
    let current = || driver().ctx_current().unwrap_or_default();
    let Some(address) = end.map(|end| end.address) else { return current() };
    if let Some(manager) = registry::owner(address) {
        return manager.gpu().context();
    }
    let told =
        driver().pointer_attribute(PointerAttribute::CONTEXT, address).ok().filter(|told| !told.is_null());
    let of_device = || registry::existing(home(address)?).map(|manager| manager.gpu().context());
    told.or_else(of_device).unwrap_or_else(current)
}

/// The copy as one between contexts.
pub(in crate::hooks) fn between(
    copy: &CUDA_MEMCPY3D_PEER,
    ends: &[Option<CopyEnd>; 2],
) -> CUDA_MEMCPY3D_PEER {
    let kind = |end: &Option<CopyEnd>, said| {
        let ours = end.is_some_and(|end| registry::owner(end.address).is_some());
        if ours { CU_MEMORYTYPE_DEVICE } else { said }
    };
    CUDA_MEMCPY3D_PEER {
        dstContext: context(ends[0].as_ref()),
        srcContext: context(ends[1].as_ref()),
        dstMemoryType: kind(&ends[0], copy.dstMemoryType),
        srcMemoryType: kind(&ends[1], copy.srcMemoryType),
        ..*copy
    }
}

/// The parts, cut further so that no row is longer than [`ROW`].
pub(in crate::hooks) fn short_rows(peer: &PeerCopy) -> impl Iterator<Item = CopyPart> {
    peer.parts.iter().flat_map(|part| {
        let rows = CopyPart { at: [0; 3], size: part.size };
        let places: Vec<u64> = (1..=part.size[0] / ROW).map(|row| row * ROW).collect();
        let pieces = if part.size[1] * part.size[2] == 1 {
            cut(rows.size, &[(CopyEnd::flat(0), places)])
        } else {
            vec![rows]
        };
        let at = part.at;
        pieces.into_iter().map(move |piece| CopyPart { at: [at[0] + piece.at[0], at[1], at[2]], ..piece })
    })
}

/// Makes a copy between contexts, part by part: in the stream, or synchronously in the family's default stream.
pub(in crate::hooks) fn detour<F: Family>(
    copy: &CUDA_MEMCPY3D_PEER,
    ends: &[Option<CopyEnd>; 2],
    peer: &PeerCopy,
    stream: Option<CUstream>,
) -> CUresult {
    let copy = between(copy, ends);
    carried(short_rows(peer), |part| {
        let part = volume::part(&copy, part);
        // SAFETY: a part of the program's copy, under the driver's own rules for it.
        unsafe {
            match stream {
                Some(stream) => driver().get::<symbol::cuMemcpy3DPeerAsync>()(&part, stream),
                None => driver().get::<F::Between>()(&part),
            }
        }
    })
}

/// The source is read before the call returns.
pub(in crate::hooks) const DURING_THE_CALL: u32 = 2;

/// Waits for a copy in a stream if its source must be read before the call returns. A captured copy reads nothing yet.
pub(in crate::hooks) fn read_by(order: u32, stream: CUstream) -> CUresult {
    if order != DURING_THE_CALL || is_captured::<Legacy>(stream) {
        return CUresult::SUCCESS;
    }
    driver().stream_synchronize(stream).into()
}

/// Makes the parts of a copy one by one, until one fails.
pub(in crate::hooks) fn carried(
    mut parts: impl Iterator<Item = CopyPart>,
    mut call: impl FnMut(&CopyPart) -> CUresult,
) -> CUresult {
    parts.try_for_each(|part| call(&part).ok()).into()
}

/// A copy of consecutive bytes as a description. `said` is the direction that the call names, if it names one.
fn described(linear: &Linear, said: Option<Direction>) -> CUDA_MEMCPY3D_PEER {
    let mut copy = volume::flat(linear.to, linear.from, linear.bytes);
    match said {
        Some(Direction::HostToDevice) => {
            (copy.srcMemoryType, copy.srcHost) = (CU_MEMORYTYPE_HOST, linear.from as *const _);
        }
        Some(Direction::DeviceToHost) => {
            (copy.dstMemoryType, copy.dstHost) = (CU_MEMORYTYPE_HOST, linear.to as *mut _);
        }
        _ => {}
    }
    copy
}

/// Makes a copy of consecutive bytes; `None` if it can be forwarded.
pub(in crate::hooks) fn linear<F: Family>(linear: &Linear, said: Option<Direction>) -> Option<Outcome> {
    if !peer_access::has_several_devices() {
        return None;
    }
    let copy = described(linear, said);
    let ends = volume::ends(&copy);
    let peer = peer_copy(&ends, &volume::size(&copy), linear.stream)?;
    let stream = (!linear.waits).then_some(linear.stream);
    if peer.detour {
        return Some(detour::<F>(&copy, &ends, &peer, stream).into());
    }
    Some(by_address::<F>([linear.to, linear.from], peer, stream).into())
}

/// Makes the parts of a copy of consecutive bytes.
fn by_address<F: Family>(ends: [u64; 2], peer: PeerCopy, stream: Option<CUstream>) -> CUresult {
    carried(peer.parts.into_iter(), |part| {
        let ([to, from], bytes) = (ends.map(|end| end + part.at[0]), part.size[0] as usize);
        // SAFETY: a part of the program's copy.
        unsafe {
            match stream {
                Some(stream) => driver().get::<symbol::cuMemcpyAsync>()(to, from, bytes, stream),
                None => driver().get::<F::Flat>()(to, from, bytes),
            }
        }
    })
}

/// Makes a copy by description; `None` if it can be forwarded. `call` makes a copy like the program's.
///
/// # Safety
/// `copy` is null or the program's description.
pub(in crate::hooks) unsafe fn shaped<F: Family, D: Description>(
    copy: *const D,
    stream: Option<CUstream>,
    call: impl Fn(&D) -> CUresult,
) -> Option<Outcome> {
    if !peer_access::has_several_devices() {
        return None;
    }
    // SAFETY: by contract.
    let copy = unsafe { copy.as_ref() }?;
    let general = volume::filled(&copy.general());
    let ends = volume::ends(&general);
    let size = volume::size(&general);
    let peer = if D::NAMES_CONTEXTS {
        peer_copy_between(&ends, &size)
    } else {
        peer_copy(&ends, &size, stream.unwrap_or_default())
    }?;
    if peer.detour {
        return Some(detour::<F>(&general, &ends, &peer, stream).into());
    }
    let part = |part: &CopyPart| call(&copy.with(&volume::part(&general, part)));
    Some(carried(peer.parts.into_iter(), part).into())
}

/// `cuMemcpy3D`, `cuMemcpy3DPeer`.
pub(in crate::hooks) unsafe fn memcpy_3d<S, F, D>(copy: *const D) -> Outcome
where
    S: Symbol<Function = unsafe extern "C" fn(*const D) -> CUresult>,
    F: Family,
    D: Description,
{
    // SAFETY: the program's description, and copies like it.
    unsafe { shaped::<F, D>(copy, None, |part| driver().get::<S>()(part)) }.unwrap_or(Outcome::Forward)
}

/// `cuMemcpy3DAsync`, `cuMemcpy3DPeerAsync`.
pub(in crate::hooks) unsafe fn memcpy_3d_async<S, F, D>(copy: *const D, stream: CUstream) -> Outcome
where
    S: Symbol<Function = unsafe extern "C" fn(*const D, CUstream) -> CUresult>,
    F: Family,
    D: Description,
{
    let resolved = crate::hooks::call::stream::resolve_default::<F>(stream);
    // SAFETY: as in `volume`.
    unsafe { shaped::<F, D>(copy, Some(resolved), |part| driver().get::<S>()(part, stream)) }
        .unwrap_or(Outcome::Forward)
}

/// `cuMemcpyPeer`.
pub(in crate::hooks) fn memcpy_peer<F: Family>(
    to: CUdeviceptr,
    _to_context: CUcontext,
    from: CUdeviceptr,
    _from_context: CUcontext,
    bytes: usize,
) -> Outcome {
    peers::<F>(to, from, bytes, None)
}

/// `cuMemcpyPeerAsync`.
pub(in crate::hooks) fn memcpy_peer_async<F: Family>(
    to: CUdeviceptr,
    _to_context: CUcontext,
    from: CUdeviceptr,
    _from_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Outcome {
    peers::<F>(to, from, bytes, Some(crate::hooks::call::stream::resolve_default::<F>(stream)))
}

/// `cuMemcpyPeer` crashes in the driver (580) if an end is host memory that only its device may access, in one tier or several. The form with
/// a description does not crash, but cannot be captured. The form by addresses can be captured, but needs access to both ends.
fn peers<F: Family>(to: u64, from: u64, bytes: usize, stream: Option<CUstream>) -> Outcome {
    let (ends, size) = ([Some(CopyEnd::flat(to)), Some(CopyEnd::flat(from))], [bytes as u64, 1, 1]);
    if !concerns(&ends) || !ends.iter().flatten().any(|end| is_elsewhere(end, &size)) {
        return Outcome::Forward;
    }
    let by_address_only = |stream: CUstream| takes_no_detour(stream) && reach_in(&ends, stream);
    let detour = !stream.is_some_and(by_address_only);
    let peer = PeerCopy { parts: parts(&ends, &size).unwrap_or_else(|| vec![CopyPart::whole(size)]), detour };
    if !peer.detour {
        return by_address::<F>([to, from], peer, stream).into();
    }
    self::detour::<F>(&volume::flat(to, from, bytes), &ends, &peer, stream).into()
}

/// Does a part of this end lie elsewhere than on its device?
fn is_elsewhere(end: &CopyEnd, size: &CopySize) -> bool {
    let block = registry::owner(end.address).and_then(|manager| manager.block(end.address));
    let opened = || ipc::view(end.address).is_some();
    block.map_or_else(opened, |block| block.tiers.elsewhere() > 0)
        || !borders(end, size).is_empty()
        || physical::elsewhere(end.address).is_some()
}
