//! Batches of three-dimensional copies, of which some are between devices: those are parted, or led between contexts.
//!
//! The copies of a batch have no order among them, so a batch may become several. Ends that are arrays stay as they are.

use std::ffi::c_void;
use std::slice;

use wm_abi::symbol::Symbol;
use wm_abi::{CU_MEMCPY_OPERAND_TYPE_POINTER, CUDA_MEMCPY3D_BATCH_OP, CUresult, CUstream};

use super::crossing::{self, Family, PeerCopy};
use super::volume::{self, Description};
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

/// `cuMemcpy3DBatchAsync_v2`, which does not say what failed.
pub(in crate::hooks) unsafe fn memcpy_3d_batch_async_v2<S: Symbol<Function = VolumeBatchV2>>(
    count: usize,
    operations: *mut c_void,
    flags: u64,
    stream: CUstream,
) -> Outcome {
    let call = |list: &mut [Operation]| {
        // SAFETY: as in `first`.
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
    let Some(peer) = peer_copy(operation, resolve_default::<F>(stream)) else { return Outcome::Forward };
    let call = |list: &mut [Operation]| {
        let call = |one: &mut Operation| {
            // SAFETY: a part of the program's copy.
            unsafe { driver().get::<S>()(std::ptr::from_mut(one).cast(), flags, stream) }
        };
        list.iter_mut().try_for_each(|one| call(one).ok()).into()
    };
    make(operation, &peer, resolve_default::<F>(stream), call).into()
}

/// `call` makes a batch like the program's.
unsafe fn serve(
    count: usize,
    operations: *mut c_void,
    failed: *mut usize,
    stream: CUstream,
    call: impl Fn(&mut [Operation]) -> CUresult,
) -> Outcome {
    // The driver refuses the null stream here.
    if operations.is_null() || stream.is_null() || !peer_access::has_several_devices() {
        return Outcome::Forward;
    }
    // SAFETY: the program's list, as long as it says.
    let operations = unsafe { slice::from_raw_parts(operations.cast::<Operation>(), count) };
    let peers: Vec<_> = operations.iter().map(|operation| peer_copy(operation, stream)).collect();
    if peers.iter().all(Option::is_none) {
        return Outcome::Forward;
    }
    for (index, (operation, peer)) in operations.iter().zip(&peers).enumerate() {
        let result = match peer {
            Some(peer) => make(operation, peer, stream, &call),
            None => call(&mut [*operation]),
        };
        if result != CUresult::SUCCESS {
            // SAFETY: null, or the program's place for the position of what failed.
            if let Some(place) = unsafe { failed.as_mut() } {
                *place = index;
            }
            return Outcome::Return(result);
        }
    }
    Outcome::Return(CUresult::SUCCESS)
}

fn peer_copy(operation: &Operation, stream: CUstream) -> Option<PeerCopy> {
    let are_pointers =
        [operation.src.type_, operation.dst.type_].iter().all(|kind| *kind == CU_MEMCPY_OPERAND_TYPE_POINTER);
    let general = volume::filled(&operation.general());
    are_pointers
        .then(|| crossing::peer_copy(&volume::ends(&general), &volume::size(&general), stream))
        .flatten()
}

/// Makes a copy that is not the driver's as it is.
fn make(
    operation: &Operation,
    peer: &PeerCopy,
    stream: CUstream,
    call: impl Fn(&mut [Operation]) -> CUresult,
) -> CUresult {
    let general = volume::filled(&operation.general());
    if peer.detour {
        let ends = volume::ends(&general);
        let result = crossing::detour::<Legacy>(&general, &ends, peer, Some(stream));
        return if result == CUresult::SUCCESS {
            crossing::read_by(operation.srcAccessOrder, stream)
        } else {
            result
        };
    }
    let part = |part| operation.with(&volume::part(&general, part));
    let mut parts: Vec<_> = peer.parts.iter().map(part).collect();
    call(&mut parts)
}
