//! Copies that touch memory of another device.
//!
//! The driver's own memory needs nothing for them. Ours is mapped, and mapped memory differs three times: a device copies it only with a
//! right to it, so the right is given before the call is made. Where devices cannot have the right, the copy goes between the owners'
//! contexts, which needs none. And a copy between devices must not touch two tiers in one call, which crashes NVIDIA's
//! driver: it is made in parts.
//!
//! Nothing is done, and no description is read, in a process with one device. With several, a copy costs a look at the owner
//! of each end.

use std::ops::Range;

use wm_abi::symbol::{self, Symbol};
use wm_abi::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_POINTER_ATTRIBUTE_CONTEXT,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CUDA_MEMCPY3D_PEER, CUcontext,
    CUdevice, CUdeviceptr, CUresult, CUstream,
};
use wm_driver::{Api, Gpu};

use super::stream::{DefaultStream, Legacy, PerThread, captured};
use super::volume::{self, Description};
use crate::boundary::Answer;
use crate::counters::Direction;
use crate::cut::{End, Part, Size, cut};
use crate::ipc;
use crate::managers;
use crate::multipath::Linear;
use crate::physical;
use crate::state::driver;

/// Most bytes of a row that goes between contexts: what a copy of several dimensions can take is not told.
const ROW: u64 = 1 << 30;

/// The synchronous functions of one family of entry points.
pub(super) trait Family: DefaultStream {
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

/// How a copy is made that cannot be the driver's as it is.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) parts: Vec<Part>,
    /// Between the owners' contexts: the device that would make the copy cannot reach an end.
    pub(super) detour: bool,
}

/// The way of a copy in a stream, with the calling thread's context; `None`: the driver's, as it is.
pub(super) fn way(ends: &[Option<End>; 2], size: &Size, stream: CUstream) -> Option<Way> {
    if !concerns(ends) || size.contains(&0) {
        return None;
    }
    let detour = !reach_in(ends, stream) && !takes_no_detour(stream);
    taken(parts(ends, size), detour, size)
}

/// As [`reach`], also for a stream's device, which makes the copy.
fn reach_in(ends: &[Option<End>; 2], stream: CUstream) -> bool {
    let there = context_elsewhere(stream).and_then(|context| within(context, || reach(ends)));
    reach(ends) & there.unwrap_or(true)
}

/// The driver (580) does not capture the copy between contexts: the program is told what it says of its own call.
fn takes_no_detour(stream: CUstream) -> bool {
    let is_legacy = matches!(stream, CUstream::NULL | CUstream::LEGACY);
    !is_legacy && captured::<Legacy>(stream)
}

/// Opens the way to both ends for the calling thread's device; `false`: to one it cannot be opened.
fn reach(ends: &[Option<End>; 2]) -> bool {
    let addresses = ends.iter().flatten().map(|end| end.address);
    addresses.filter(|address| !managers::make_reachable(*address)).count() == 0
}

/// The context of a stream that is not of the calling thread's.
fn context_elsewhere(stream: CUstream) -> Option<CUcontext> {
    if matches!(stream, CUstream::NULL | CUstream::LEGACY | CUstream::PER_THREAD) {
        return None;
    }
    let mut context = CUcontext::NULL;
    // SAFETY: the driver checks the handle; the out-pointer is to a live local.
    let asked = unsafe { driver().get::<symbol::cuStreamGetCtx>()(stream, &mut context) };
    (asked == CUresult::SUCCESS && Ok(context) != driver().ctx_current()).then_some(context)
}

/// Runs `body` with a context current; with the one that is, where none is named. `None`: it cannot be made current.
pub(super) fn within<T>(context: CUcontext, body: impl FnOnce() -> T) -> Option<T> {
    if context.is_null() || Ok(context) == driver().ctx_current() {
        return Some(body());
    }
    // SAFETY: a handle that the driver checks; what is pushed is popped.
    unsafe { driver().get::<symbol::cuCtxPushCurrent_v2>()(context) }.ok().ok()?;
    let result = body();
    let mut popped = CUcontext::NULL;
    // SAFETY: as above.
    let _ = unsafe { driver().get::<symbol::cuCtxPopCurrent_v2>()(&mut popped) };
    Some(result)
}

/// As [`way`], of a copy that names both ends' contexts and therefore needs no right.
pub(super) fn way_between(ends: &[Option<End>; 2], size: &Size) -> Option<Way> {
    concerns(ends).then(|| taken(parts(ends, size), false, size)).flatten()
}

fn taken(parts: Option<Vec<Part>>, detour: bool, size: &Size) -> Option<Way> {
    (detour || parts.is_some()).then(|| {
        let parts = parts.unwrap_or_else(|| vec![Part::whole(*size)]);
        Way { parts, detour }
    })
}

/// Can the copy touch memory that another device owns, and that we know of?
fn concerns(ends: &[Option<End>; 2]) -> bool {
    let ours = |end: &End| managers::owner(end.address).is_some();
    managers::are_several() && (ends.iter().flatten().any(ours) || physical::is_any_elsewhere())
}

/// The parts of a copy that crosses a border of tiers. Within a device it need not be parted, but a stream may be another device's, and
/// a part more costs little.
fn parts(ends: &[Option<End>; 2], size: &Size) -> Option<Vec<Part>> {
    let bordered = ends.map(|end| end.map_or_else(Vec::new, |end| borders(&end, size)));
    if bordered.iter().all(Vec::is_empty) {
        return None;
    }
    let ends: Vec<_> =
        ends.iter().zip(bordered).filter_map(|(end, borders)| Some(((*end)?, borders))).collect();
    Some(cut(*size, &ends)).filter(|parts| parts.len() > 1)
}

/// Where other tiers begin at an end.
fn borders(end: &End, size: &Size) -> Vec<u64> {
    let Some(manager) = managers::owner(end.address) else { return physical::borders(end.range(size)) };
    match manager.block(end.address) {
        Some(block) if block.tiers.elsewhere() == 0 => Vec::new(),
        Some(_) => manager.borders(end.range(size)),
        None if ipc::view(end.address).is_some() => told(end.range(size), manager.gpu().granularity() as u64),
        None => Vec::new(),
    }
}

/// Where what the driver tells of a range's memory changes: that of another process, of which we know no more. Handles begin at
/// multiples of `unit`.
fn told(range: Range<u64>, unit: u64) -> Vec<u64> {
    let what = |at| {
        let kind = attribute::<u32>(at, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
        (kind, attribute::<CUdevice>(at, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL))
    };
    let mut before = what(range.start);
    let starts = (range.start / unit + 1..).map(|number| number * unit).take_while(|at| *at < range.end);
    let changes = |at: &u64| {
        let now = what(*at);
        std::mem::replace(&mut before, now) != now
    };
    starts.filter(changes).collect()
}

/// Is every end that has an address known to be memory of the calling thread's device?
pub(super) fn is_within_a_device(ends: &[Option<End>; 2]) -> bool {
    let here = managers::current_device();
    ends.iter().flatten().all(|end| home(end.address) == here && here.is_some())
}

/// The device that memory belongs to, if it is ours or went elsewhere.
fn home(address: u64) -> Option<CUdevice> {
    let ours = managers::owner(address).map(|manager| manager.gpu().ordinal());
    ours.or_else(|| attribute(address, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL))
}

/// An attribute that the driver has of an address.
fn attribute<T: Default>(address: u64, attribute: u32) -> Option<T> {
    let mut value = T::default();
    let place = std::ptr::from_mut(&mut value).cast();
    // SAFETY: the callers below ask for attributes of the type that they name; the place is a live local.
    let asked = unsafe { driver().get::<symbol::cuPointerGetAttribute>()(place, attribute, address) };
    (asked == CUresult::SUCCESS).then_some(value)
}

/// The context that an end of a copy is named by.
fn context(end: Option<&End>) -> CUcontext {
    let current = || driver().ctx_current().unwrap_or_default();
    let Some(address) = end.map(|end| end.address) else { return current() };
    if let Some(manager) = managers::owner(address) {
        return manager.gpu().context();
    }
    let told = attribute::<CUcontext>(address, CU_POINTER_ATTRIBUTE_CONTEXT).filter(|told| !told.is_null());
    let of_device = || managers::known(home(address)?).map(|manager| manager.gpu().context());
    told.or_else(of_device).unwrap_or_else(current)
}

/// The copy with the contexts of its ends, in rows that are not too long.
pub(super) fn between(copy: &CUDA_MEMCPY3D_PEER, ends: &[Option<End>; 2]) -> CUDA_MEMCPY3D_PEER {
    let kind = |end: &Option<End>, said| {
        let ours = end.is_some_and(|end| managers::owner(end.address).is_some());
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

/// The way's parts, none with a longer row than a copy between contexts takes for certain.
pub(super) fn short_rows(way: &Way) -> impl Iterator<Item = Part> {
    way.parts.iter().flat_map(|part| {
        let rows = Part { at: [0; 3], size: part.size };
        let places: Vec<u64> = (1..=part.size[0] / ROW).map(|row| row * ROW).collect();
        let pieces = if part.size[1] * part.size[2] == 1 {
            cut(rows.size, &[(End::flat(0), places)])
        } else {
            vec![rows]
        };
        let at = part.at;
        pieces.into_iter().map(move |piece| Part { at: [at[0] + piece.at[0], at[1], at[2]], ..piece })
    })
}

/// Makes a copy between contexts, part by part: in a stream, or in the family's default stream and waiting as the driver does.
pub(super) fn detour<F: Family>(
    copy: &CUDA_MEMCPY3D_PEER,
    ends: &[Option<End>; 2],
    way: &Way,
    stream: Option<CUstream>,
) -> CUresult {
    let copy = between(copy, ends);
    carried(short_rows(way), |part| {
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
pub(super) const DURING_THE_CALL: u32 = 2;

/// Waits for a copy that was put into a stream, if its source must be read before the call returns. A capture reads none.
pub(super) fn read_by(order: u32, stream: CUstream) -> CUresult {
    if order != DURING_THE_CALL || captured::<Legacy>(stream) {
        return CUresult::SUCCESS;
    }
    // SAFETY: the program's stream.
    unsafe { driver().get::<symbol::cuStreamSynchronize>()(stream) }
}

/// Makes a copy's parts one by one; the first failure ends it.
pub(super) fn carried(
    mut parts: impl Iterator<Item = Part>,
    mut call: impl FnMut(&Part) -> CUresult,
) -> CUresult {
    parts.try_for_each(|part| call(&part).ok()).into()
}

/// A copy of consecutive bytes as a description, whose ends are what the call says of them.
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

/// A copy of consecutive bytes, if it is not the driver's as it is.
pub(super) fn linear<F: Family>(linear: &Linear, said: Option<Direction>) -> Option<Answer> {
    if !managers::are_several() {
        return None;
    }
    let copy = described(linear, said);
    let ends = volume::ends(&copy);
    let way = way(&ends, &volume::size(&copy), linear.stream)?;
    let stream = (!linear.waits).then_some(linear.stream);
    if way.detour {
        return Some(detour::<F>(&copy, &ends, &way, stream).into());
    }
    Some(by_address::<F>([linear.to, linear.from], way, stream).into())
}

/// Makes the parts of a copy of consecutive bytes.
fn by_address<F: Family>(ends: [u64; 2], way: Way, stream: Option<CUstream>) -> CUresult {
    carried(way.parts.into_iter(), |part| {
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

/// A copy by description, if it is not the driver's as it is: `call` makes one like it.
///
/// # Safety
/// `copy` is null or the program's description.
pub(super) unsafe fn shaped<F: Family, D: Description>(
    copy: *const D,
    stream: Option<CUstream>,
    call: impl Fn(&D) -> CUresult,
) -> Option<Answer> {
    if !managers::are_several() {
        return None;
    }
    // SAFETY: by contract.
    let copy = unsafe { copy.as_ref() }?;
    let general = volume::filled(&copy.general());
    let ends = volume::ends(&general);
    let size = volume::size(&general);
    let way = if D::NAMES_CONTEXTS {
        way_between(&ends, &size)
    } else {
        way(&ends, &size, stream.unwrap_or_default())
    }?;
    if way.detour {
        return Some(detour::<F>(&general, &ends, &way, stream).into());
    }
    let part = |part: &Part| call(&copy.with(&volume::part(&general, part)));
    Some(carried(way.parts.into_iter(), part).into())
}

/// `cuMemcpy3D`, `cuMemcpy3DPeer`.
pub(super) unsafe fn volume<S, F, D>(copy: *const D) -> Answer
where
    S: Symbol<Function = unsafe extern "C" fn(*const D) -> CUresult>,
    F: Family,
    D: Description,
{
    // SAFETY: the program's description, and copies like it.
    unsafe { shaped::<F, D>(copy, None, |part| driver().get::<S>()(part)) }.unwrap_or(Answer::Pass)
}

/// `cuMemcpy3DAsync`, `cuMemcpy3DPeerAsync`.
pub(super) unsafe fn volume_ordered<S, F, D>(copy: *const D, stream: CUstream) -> Answer
where
    S: Symbol<Function = unsafe extern "C" fn(*const D, CUstream) -> CUresult>,
    F: Family,
    D: Description,
{
    let named = super::stream::meant::<F>(stream);
    // SAFETY: as in `volume`.
    unsafe { shaped::<F, D>(copy, Some(named), |part| driver().get::<S>()(part, stream)) }
        .unwrap_or(Answer::Pass)
}

/// `cuMemcpyPeer`.
pub(super) fn peer<F: Family>(
    to: CUdeviceptr,
    _to_context: CUcontext,
    from: CUdeviceptr,
    _from_context: CUcontext,
    bytes: usize,
) -> Answer {
    peers::<F>(to, from, bytes, None)
}

/// `cuMemcpyPeerAsync`.
pub(super) fn peer_ordered<F: Family>(
    to: CUdeviceptr,
    _to_context: CUcontext,
    from: CUdeviceptr,
    _from_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    peers::<F>(to, from, bytes, Some(super::stream::meant::<F>(stream)))
}

/// This form crashes in the driver (580) where an end is memory of the host that only its device may use, crossing a border or not. The
/// form with a description does not, but cannot be captured; the form by addresses can, where the ends can be reached.
fn peers<F: Family>(to: u64, from: u64, bytes: usize, stream: Option<CUstream>) -> Answer {
    let (ends, size) = ([Some(End::flat(to)), Some(End::flat(from))], [bytes as u64, 1, 1]);
    if !concerns(&ends) || !ends.iter().flatten().any(|end| is_elsewhere(end, &size)) {
        return Answer::Pass;
    }
    let by_address_only = |stream: CUstream| takes_no_detour(stream) && reach_in(&ends, stream);
    let detour = !stream.is_some_and(by_address_only);
    let way = Way { parts: parts(&ends, &size).unwrap_or_else(|| vec![Part::whole(size)]), detour };
    if !way.detour {
        return by_address::<F>([to, from], way, stream).into();
    }
    self::detour::<F>(&volume::flat(to, from, bytes), &ends, &way, stream).into()
}

/// Is a part of an end not on its device?
fn is_elsewhere(end: &End, size: &Size) -> bool {
    let block = managers::owner(end.address).and_then(|manager| manager.block(end.address));
    let opened = || ipc::view(end.address).is_some();
    block.map_or_else(opened, |block| block.tiers.elsewhere() > 0)
        || !borders(end, size).is_empty()
        || physical::elsewhere(end.address).is_some()
}
