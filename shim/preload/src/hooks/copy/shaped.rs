//! Copies that a description gives: two and three dimensions, and copies that name both ends'
//! contexts.

use wm_abi::symbol::Symbol;
use wm_abi::{CUDA_MEMCPY2D, CUcontext, CUdeviceptr, CUresult, CUstream};

use super::linear::spread;
use super::peer_calls::{self, Family, carry_linear};
use super::volume::Description;
use super::{peer_copy, touching_rows};
use crate::copies::LinearCopy;
use crate::hooks::call::boundary::Outcome;
use crate::hooks::call::stream::resolve_default;
use crate::process::driver;

/// `cuMemcpy2D` and its unaligned form.
pub(in crate::hooks) unsafe fn memcpy_2d<S, F: Family>(copy: *const CUDA_MEMCPY2D) -> Outcome
where
    S: Symbol<Function = unsafe extern "C" fn(*const CUDA_MEMCPY2D) -> CUresult>,
{
    // SAFETY: the program's description of a copy, null where it made a mistake, and copies like
    // it.
    let made = unsafe { peer_calls::copy_described::<F, _>(copy, None, |part| driver().get::<S>()(part)) };
    // SAFETY: as above.
    made.unwrap_or_else(|| unsafe { spread_rows(copy, F::HANDLE, true) })
}

/// `cuMemcpy2DAsync`.
pub(in crate::hooks) unsafe fn memcpy_2d_async<S, F: Family>(
    copy: *const CUDA_MEMCPY2D,
    stream: CUstream,
) -> Outcome
where
    S: Symbol<Function = unsafe extern "C" fn(*const CUDA_MEMCPY2D, CUstream) -> CUresult>,
{
    let resolved = resolve_default::<F>(stream);
    let call = |part: &CUDA_MEMCPY2D| {
        // SAFETY: a copy like the program's.
        unsafe { driver().get::<S>()(part, stream) }
    };
    // SAFETY: null, or the program's description of a copy.
    let made = unsafe { peer_calls::copy_described::<F, _>(copy, Some(resolved), call) };
    // SAFETY: as above.
    made.unwrap_or_else(|| unsafe { spread_rows(copy, resolved, false) })
}

/// Rows without gaps are one copy of consecutive bytes, which several links may carry.
unsafe fn spread_rows(copy: *const CUDA_MEMCPY2D, stream: CUstream, waits: bool) -> Outcome {
    // SAFETY: null, or the program's description.
    let linear = unsafe { copy.as_ref() }.and_then(|copy| touching_rows::linear(copy, stream, waits));
    linear.map_or(Outcome::Forward, |linear| spread(&linear))
}

/// `cuMemcpy3D`, `cuMemcpy3DPeer`.
pub(in crate::hooks) unsafe fn memcpy_3d<S, F, D>(copy: *const D) -> Outcome
where
    S: Symbol<Function = unsafe extern "C" fn(*const D) -> CUresult>,
    F: Family,
    D: Description,
{
    // SAFETY: the program's description, and copies like it.
    unsafe { peer_calls::copy_described::<F, D>(copy, None, |part| driver().get::<S>()(part)) }
        .unwrap_or(Outcome::Forward)
}

/// `cuMemcpy3DAsync`, `cuMemcpy3DPeerAsync`.
pub(in crate::hooks) unsafe fn memcpy_3d_async<S, F, D>(copy: *const D, stream: CUstream) -> Outcome
where
    S: Symbol<Function = unsafe extern "C" fn(*const D, CUstream) -> CUresult>,
    F: Family,
    D: Description,
{
    let resolved = resolve_default::<F>(stream);
    let call = |part: &D| {
        // SAFETY: a copy like the program's.
        unsafe { driver().get::<S>()(part, stream) }
    };
    // SAFETY: null, or the program's description.
    unsafe { peer_calls::copy_described::<F, D>(copy, Some(resolved), call) }.unwrap_or(Outcome::Forward)
}

/// `cuMemcpyPeer`.
pub(in crate::hooks) fn memcpy_peer<F: Family>(
    to: CUdeviceptr,
    _to_context: CUcontext,
    from: CUdeviceptr,
    _from_context: CUcontext,
    bytes: usize,
) -> Outcome {
    copy_between_peers::<F>(&LinearCopy::unified(to, from, bytes, F::HANDLE, true), None)
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
    let stream = resolve_default::<F>(stream);
    copy_between_peers::<F>(&LinearCopy::unified(to, from, bytes, stream, false), Some(stream))
}

fn copy_between_peers<F: Family>(copy: &LinearCopy, stream: Option<CUstream>) -> Outcome {
    let peer = peer_copy::plan_between_peers(copy.device_ends(), &copy.size(), stream);
    peer.map_or(Outcome::Forward, |peer| carry_linear::<F>(copy, &peer).into())
}
