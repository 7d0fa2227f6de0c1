//! Calls of the virtual memory family on addresses that are ours: refused, as for memory of `cuMemAlloc`.
//!
//! To the driver our blocks are mappings like any other; a program that unmaps or remaps one by mistake would take the
//! memory from under its neighbours.

use wm_abi::{CUdeviceptr, CUmemAccessDesc, CUresult};

use crate::boundary::Answer;
use crate::managers;

fn refuse_ours(address: CUdeviceptr) -> Answer {
    if managers::owner(address).is_some() { Answer::Is(CUresult::INVALID_VALUE) } else { Answer::Pass }
}

pub(super) fn range(address: CUdeviceptr, _bytes: usize) -> Answer {
    refuse_ours(address)
}

pub(super) fn map(address: CUdeviceptr, _bytes: usize, _offset: usize, _handle: u64, _flags: u64) -> Answer {
    refuse_ours(address)
}

pub(super) fn access(
    address: CUdeviceptr,
    _bytes: usize,
    _access: *const CUmemAccessDesc,
    _count: usize,
) -> Answer {
    refuse_ours(address)
}
