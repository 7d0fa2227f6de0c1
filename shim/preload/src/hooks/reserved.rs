//! Addresses that are ours: calls of the virtual memory family on them are refused, as for memory of `cuMemAlloc`.
//!
//! To the driver our blocks are mappings like any other; a program that unmaps or remaps one by mistake would take the
//! memory from under its neighbours.

use std::ffi::{c_uint, c_void};

use wm_abi::{CUdeviceptr, CUresult};

use super::boundary::Answer;
use crate::registry;

/// Is the address in a reservation of ours?
pub(super) fn is_ours(address: CUdeviceptr) -> bool {
    registry::owner(address).is_some()
}

pub(super) fn range(address: CUdeviceptr, _bytes: usize) -> Answer {
    if is_ours(address) { Answer::Is(CUresult::INVALID_VALUE) } else { Answer::Pass }
}

/// The driver takes every mapping for memory that the host may have allocated.
pub(super) fn host_pointer(_device: *mut CUdeviceptr, host: *mut c_void, _flags: c_uint) -> Answer {
    range(host as u64, 0)
}

pub(super) fn host_flags(_flags: *mut c_uint, host: *mut c_void) -> Answer {
    range(host as u64, 0)
}
