//! Copies that touch memory of another device: the driver's own memory needs no peer access for them, mapped memory does.
//!
//! So the way is opened before the call is made, whoever carries the call out. Nothing is done, and no description is
//! read, in a process with one device.

use std::ptr;

use wm_abi::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED, CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUdeviceptr,
    CUmemcpyAttributes, CUstream,
};

use crate::boundary::Answer;
use crate::managers;

/// The two ends of a copy.
pub(super) fn ends(to: CUdeviceptr, from: CUdeviceptr) {
    [to, from].into_iter().for_each(managers::make_reachable);
}

/// An end of a copy with a description: an array, or memory that is said to be the host's, has no address for us.
fn end(kind: u32, address: CUdeviceptr) {
    if matches!(kind, CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED) {
        managers::make_reachable(address);
    }
}

/// The ends of a two-dimensional copy.
///
/// # Safety
/// `copy` is null or the program's description.
pub(super) unsafe fn plane(copy: *const CUDA_MEMCPY2D) {
    // SAFETY: by contract.
    if let Some(copy) = unsafe { copy.as_ref() }.filter(|_| managers::are_several()) {
        end(copy.dstMemoryType, copy.dstDevice);
        end(copy.srcMemoryType, copy.srcDevice);
    }
}

/// `cuMemcpy3D`.
pub(super) unsafe fn volume(copy: *const CUDA_MEMCPY3D) -> Answer {
    // SAFETY: the program's description of a copy, null where it made a mistake.
    if let Some(copy) = unsafe { copy.as_ref() }.filter(|_| managers::are_several()) {
        end(copy.dstMemoryType, copy.dstDevice);
        end(copy.srcMemoryType, copy.srcDevice);
    }
    Answer::Pass
}

/// `cuMemcpy3DAsync`.
pub(super) unsafe fn volume_ordered(copy: *const CUDA_MEMCPY3D, _stream: CUstream) -> Answer {
    // SAFETY: as in `volume`.
    unsafe { volume(copy) }
}

/// `cuMemcpyWithAttributesAsync`.
pub(super) fn with_attributes(
    to: CUdeviceptr,
    from: CUdeviceptr,
    _bytes: usize,
    _attributes: *mut CUmemcpyAttributes,
    _stream: CUstream,
) -> Answer {
    ends(to, from);
    Answer::Pass
}

/// The ends of all copies of a batch.
///
/// # Safety
/// Both arrays are null or have `count` entries.
pub(super) unsafe fn batch(to: *const CUdeviceptr, from: *const CUdeviceptr, count: usize) {
    if to.is_null() || from.is_null() || !managers::are_several() {
        return;
    }
    for position in 0..count {
        // SAFETY: inside the arrays, by contract.
        unsafe { ends(ptr::read(to.add(position)), ptr::read(from.add(position))) };
    }
}
