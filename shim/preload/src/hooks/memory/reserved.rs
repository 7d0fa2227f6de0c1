//! Addresses that are ours: calls of the virtual memory family on them are refused, as for memory
//! of `cuMemAlloc`.
//!
//! To the driver our blocks are mappings like any other; a program that unmaps or remaps one by
//! mistake would take the memory from under its neighbours.

use std::ffi::{c_uint, c_void};

use wm_abi::{CUdeviceptr, CUresult};

use crate::hooks::call::boundary::Outcome;
use crate::registry;

/// Is the address in a reservation of ours?
pub(in crate::hooks) fn is_ours(address: CUdeviceptr) -> bool {
    registry::owner(address).is_some()
}

pub(in crate::hooks) fn range(address: CUdeviceptr, _bytes: usize) -> Outcome {
    if is_ours(address) { Outcome::Return(CUresult::INVALID_VALUE) } else { Outcome::Forward }
}

/// `cuMemHostGetDevicePointer`. The driver takes every mapping for memory that the host may have
/// allocated.
pub(in crate::hooks) fn mem_host_get_device_pointer(
    _device: *mut CUdeviceptr,
    host: *mut c_void,
    _flags: c_uint,
) -> Outcome {
    range(host as u64, 0)
}

/// `cuMemHostGetFlags`.
pub(in crate::hooks) fn mem_host_get_flags(_flags: *mut c_uint, host: *mut c_void) -> Outcome {
    range(host as u64, 0)
}
