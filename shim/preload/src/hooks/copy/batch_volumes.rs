//! Batches of three-dimensional copies. Copies between devices are made in parts, or between the
//! owners' contexts.
//!
//! The copies of a batch have no order among them, so a batch may become several. A copy with an
//! array as an end stays as it is.

use std::ffi::c_void;

use wm_abi::symbol::Symbol;
use wm_abi::{CUDA_MEMCPY3D_BATCH_OP, CUDA_MEMCPY3D_PEER, CUresult, CUstream};

use super::batch_arguments::{operations, pointer_ends, report_failed};
use super::peer_calls::{self, Family};
use super::peer_copy::{self, PeerCopy};
use super::volume::{self, Description};
use crate::copies::CopyEnd;
use crate::hooks::call::boundary::Outcome;
use crate::hooks::call::stream::{Legacy, resolve_default};
use crate::hooks::memory::peer_access;
use crate::process::driver;

type Operation = CUDA_MEMCPY3D_BATCH_OP;
pub(in crate::hooks) type VolumeBatchV1 =
    unsafe extern "C" fn(usize, *mut c_void, *mut usize, u64, CUstream) -> CUresult;
pub(in crate::hooks) type VolumeBatchV2 = unsafe extern "C" fn(usize, *mut c_void, u64, CUstream) -> CUresult;
pub(in crate::hooks) type One = unsafe extern "C" fn(*mut c_void, u64, CUstream) -> CUresult;

/// `cuMemcpy3DBatchAsync`.
pub(in crate::hooks) unsafe fn memcpy_3d_batch_async<S: Symbol<Function = VolumeBatchV1>>(
    count: usize,
    operations: *mut c_void,
    failed: *mut usize,
    flags: u64,
    stream: CUstream,
) -> Outcome {
    let call = |list: &mut [Operation]| {
        let mut ignored = 0;
        // SAFETY: a list of so many copies.
        unsafe { driver().get::<S>()(list.len(), list.as_mut_ptr().cast(), &mut ignored, flags, stream) }
    };
    // SAFETY: the program's arguments.
    unsafe { serve(count, operations, failed, stream, call) }
}

/// `cuMemcpy3DBatchAsync_v2`, which does not say which copy failed.
pub(in crate::hooks) unsafe fn memcpy_3d_batch_async_v2<S: Symbol<Function = VolumeBatchV2>>(
    count: usize,
    operations: *mut c_void,
    flags: u64,
    stream: CUstream,
) -> Outcome {
    let call = |list: &mut [Operation]| {
        // SAFETY: a list of so many copies.
        unsafe { driver().get::<S>()(list.len(), list.as_mut_ptr().cast(), flags, stream) }
    };
    // SAFETY: the program's arguments.
    unsafe { serve(count, operations, std::ptr::null_mut(), stream, call) }
}

/// `cuMemcpy3DWithAttributesAsync`.
pub(in crate::hooks) unsafe fn memcpy_3d_with_attributes_async<S: Symbol<Function = One>, F: Family>(
    operation: *mut c_void,
    flags: u64,
    stream: CUstream,
) -> Outcome {
    // SAFETY: null, or the program's copy.
    let Some(operation) = (unsafe { operation.cast::<Operation>().as_ref() }) else {
        return Outcome::Forward;
    };
    let resolved = resolve_default::<F>(stream);
    let Some(planned) = plan(operation, resolved) else { return Outcome::Forward };
    let call = |list: &mut [Operation]| {
        let call = |one: &mut Operation| {
            // SAFETY: a part of the program's copy.
            unsafe { driver().get::<S>()(std::ptr::from_mut(one).cast(), flags, stream) }
        };
        list.iter_mut().try_for_each(|one| call(one).ok()).into()
    };
    make(operation, &planned, resolved, call).into()
}

/// Serves a batch. `call` makes a batch like the program's.
///
/// # Safety
/// The program's arguments.
unsafe fn serve(
    count: usize,
    list: *mut c_void,
    failed: *mut usize,
    stream: CUstream,
    call: impl Fn(&mut [Operation]) -> CUresult,
) -> Outcome {
    if !peer_access::has_several_devices() {
        return Outcome::Forward;
    }
    // SAFETY: by contract.
    let Some(operations) = (unsafe { operations(count, list, stream) }) else { return Outcome::Forward };
    let plans: Vec<_> = operations.iter().map(|operation| plan(operation, stream)).collect();
    if plans.iter().all(Option::is_none) {
        return Outcome::Forward;
    }
    for (index, (operation, peer)) in operations.iter().zip(&plans).enumerate() {
        let result = match peer {
            Some(peer) => make(operation, peer, stream, &call),
            None => call(&mut [*operation]),
        };
        if result != CUresult::SUCCESS {
            // SAFETY: null, or the program's place for the number of the copy that failed.
            unsafe { report_failed(failed, index) };
            return Outcome::Return(result);
        }
    }
    Outcome::Return(CUresult::SUCCESS)
}

/// A copy that cannot be forwarded, with its ends and the plan for it.
struct PlannedOperation {
    general: CUDA_MEMCPY3D_PEER,
    ends: [Option<CopyEnd>; 2],
    peer: PeerCopy,
}

/// Plans one copy; `None` if it can be forwarded.
fn plan(operation: &Operation, stream: CUstream) -> Option<PlannedOperation> {
    let general = volume::filled(&operation.general());
    let ends = pointer_ends(operation, &general);
    if ends.iter().any(Option::is_none) {
        return None;
    }
    let peer = peer_copy::plan(ends.each_ref().map(Option::as_ref), &volume::size(&general), stream)?;
    Some(PlannedOperation { general, ends, peer })
}

/// Makes a copy as planned.
fn make(
    operation: &Operation,
    PlannedOperation { general, ends, peer }: &PlannedOperation,
    stream: CUstream,
    call: impl Fn(&mut [Operation]) -> CUresult,
) -> CUresult {
    if peer.detour {
        let ends = ends.each_ref().map(Option::as_ref);
        let result = peer_calls::detour::<Legacy>(general, ends, peer, Some(stream));
        return if result == CUresult::SUCCESS {
            peer_calls::await_source(operation.srcAccessOrder, stream)
        } else {
            result
        };
    }
    let part = |part| operation.with(&volume::sub_volume(general, part));
    let mut parts: Vec<_> = peer.parts.iter().map(part).collect();
    call(&mut parts)
}
