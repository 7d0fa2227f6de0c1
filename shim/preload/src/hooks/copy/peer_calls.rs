//! The driver calls that make a copy which cannot be forwarded ([`PeerCopy`]).

use wm_abi::symbol::{self, Symbol};
use wm_abi::{CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CUDA_MEMCPY3D_PEER, CUdeviceptr, CUresult, CUstream};
use wm_driver::Api;

use super::cut::{CopyPart, cut};
use super::peer_copy::{self, DeviceEnds, PeerCopy, owning_context};
use super::volume::{self, Description, EMPTY};
use crate::copies::{CopyEnd, EndKind, LinearCopy, StridedRange};
use crate::hooks::call::boundary::Outcome;
use crate::hooks::call::stream::{DefaultStream, Legacy, PerThread, is_captured};
use crate::hooks::memory::peer_access;
use crate::process::driver;

/// Longest row of a copy between contexts, bytes: the driver documents no limit, and this much
/// works.
const ROW: u64 = 1 << 30;

/// The synchronous functions of one family of entry points.
pub(in crate::hooks) trait Family: DefaultStream {
    /// Copies between two addresses.
    type ByAddress: Symbol<Function = unsafe extern "C" fn(CUdeviceptr, CUdeviceptr, usize) -> CUresult>;
    /// Copies between two contexts.
    type BetweenContexts: Symbol<Function = unsafe extern "C" fn(*const CUDA_MEMCPY3D_PEER) -> CUresult>;
}

impl Family for Legacy {
    type ByAddress = symbol::cuMemcpy;
    type BetweenContexts = symbol::cuMemcpy3DPeer;
}

impl Family for PerThread {
    type ByAddress = symbol::cuMemcpy_ptds;
    type BetweenContexts = symbol::cuMemcpy3DPeer_ptds;
}

/// Makes a copy of consecutive bytes. `None` if the call can be forwarded.
pub(in crate::hooks) fn copy_linear<F: Family>(copy: &LinearCopy) -> Option<Outcome> {
    if !peer_access::has_several_devices() {
        return None;
    }
    let peer = peer_copy::plan(copy.device_ends(), &copy.size(), copy.stream)?;
    Some(carry_linear::<F>(copy, &peer).into())
}

/// Makes a copy of consecutive bytes as planned.
pub(super) fn carry_linear<F: Family>(copy: &LinearCopy, peer: &PeerCopy) -> CUresult {
    let stream = (!copy.waits).then_some(copy.stream);
    if peer.detour {
        return detour::<F>(&describe(copy), copy.device_ends(), peer, stream);
    }
    one_by_one(peer.parts.iter().copied(), |part| {
        let (to, from, bytes) = copy.addresses_of(part.at[0], part.size[0]);
        // SAFETY: a part of the program's copy.
        unsafe {
            match stream {
                Some(stream) => driver().get::<symbol::cuMemcpyAsync>()(to, from, bytes, stream),
                None => driver().get::<F::ByAddress>()(to, from, bytes),
            }
        }
    })
}

/// Makes a copy by description. `None` if the call can be forwarded. `call` makes a copy like the
/// program's.
///
/// # Safety
/// `copy` is null or the program's description.
pub(in crate::hooks) unsafe fn copy_described<F: Family, D: Description>(
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
    let (ends, size) = (volume::ends(&general), volume::size(&general));
    let ends = ends.each_ref().map(Option::as_ref);
    let peer = if D::NAMES_CONTEXTS {
        peer_copy::plan_between_contexts(ends, &size)
    } else {
        peer_copy::plan(ends, &size, stream.unwrap_or_default())
    }?;
    if peer.detour {
        return Some(detour::<F>(&general, ends, &peer, stream).into());
    }
    let part = |part: &CopyPart| call(&copy.with(&volume::sub_volume(&general, part)));
    Some(one_by_one(peer.parts.into_iter(), part).into())
}

/// Makes the parts of a copy one after the other, until one fails.
pub(in crate::hooks) fn one_by_one(
    mut parts: impl Iterator<Item = CopyPart>,
    mut call: impl FnMut(&CopyPart) -> CUresult,
) -> CUresult {
    parts.try_for_each(|part| call(&part).ok()).into()
}

/// Makes a copy between contexts, part by part: in the stream, or synchronously in the family's
/// default stream.
pub(super) fn detour<F: Family>(
    copy: &CUDA_MEMCPY3D_PEER,
    ends: DeviceEnds<'_>,
    peer: &PeerCopy,
    stream: Option<CUstream>,
) -> CUresult {
    let copy = with_contexts(copy, ends);
    one_by_one(short_rows(peer), |part| {
        let part = volume::sub_volume(&copy, part);
        // SAFETY: a part of the program's copy, under the driver's own rules for it.
        unsafe {
            match stream {
                Some(stream) => driver().get::<symbol::cuMemcpy3DPeerAsync>()(&part, stream),
                None => driver().get::<F::BetweenContexts>()(&part),
            }
        }
    })
}

/// The copy with the contexts of both ends named. The driver calls our blocks unified memory, and
/// we call them the device's.
fn with_contexts(copy: &CUDA_MEMCPY3D_PEER, ends: DeviceEnds<'_>) -> CUDA_MEMCPY3D_PEER {
    let memory_type = |end: Option<&CopyEnd>, said| {
        let is_ours = end.is_some_and(|end| end.memory().manager().is_some());
        if is_ours { CU_MEMORYTYPE_DEVICE } else { said }
    };
    let [to, from] = ends;
    CUDA_MEMCPY3D_PEER {
        dstContext: owning_context(to),
        srcContext: owning_context(from),
        dstMemoryType: memory_type(to, copy.dstMemoryType),
        srcMemoryType: memory_type(from, copy.srcMemoryType),
        ..*copy
    }
}

/// The parts, cut further so that no row is longer than [`ROW`]. A part of several rows comes from
/// a description, whose rows the program chose.
fn short_rows(peer: &PeerCopy) -> impl Iterator<Item = CopyPart> {
    peer.parts.iter().flat_map(|part| {
        let rows = CopyPart { at: [0; 3], size: part.size };
        let places: Vec<u64> = (1..=part.size[0] / ROW).map(|row| row * ROW).collect();
        let pieces = if part.size[1] * part.size[2] == 1 {
            cut(rows.size, &[(StridedRange::linear(0), places)])
        } else {
            vec![rows]
        };
        let at = part.at;
        pieces.into_iter().map(move |piece| CopyPart { at: [at[0] + piece.at[0], at[1], at[2]], ..piece })
    })
}

/// The description of a copy of consecutive bytes.
fn describe(copy: &LinearCopy) -> CUDA_MEMCPY3D_PEER {
    let mut description = EMPTY;
    (description.WidthInBytes, description.dstPitch, description.srcPitch) =
        (copy.bytes, copy.bytes, copy.bytes);
    (description.dstHeight, description.srcHeight) = (1, 1);
    (description.dstDevice, description.srcDevice) = (copy.to.address(), copy.from.address());
    if copy.to.kind == EndKind::Host {
        (description.dstMemoryType, description.dstHost) = (CU_MEMORYTYPE_HOST, copy.to.address() as *mut _);
    }
    if copy.from.kind == EndKind::Host {
        (description.srcMemoryType, description.srcHost) =
            (CU_MEMORYTYPE_HOST, copy.from.address() as *const _);
    }
    description
}

/// `CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL`: the source is read before the call returns.
pub(super) const DURING_THE_CALL: u32 = 2;

/// Waits for a copy in a stream if its source must be read before the call returns. A captured copy
/// reads nothing yet.
pub(super) fn await_source(order: u32, stream: CUstream) -> CUresult {
    if order != DURING_THE_CALL || is_captured::<Legacy>(stream) {
        return CUresult::SUCCESS;
    }
    driver().stream_synchronize(stream).into()
}
