//! Legacy IPC: handles of our blocks are ours, all others the driver's.

use std::ffi::c_uint;

use wm_abi::{CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, CUdeviceptr, CUipcMemHandle, CUresult};

use super::boundary::Answer;
use crate::ipc::{self, Ticket};
use crate::registry;

pub(super) unsafe fn get(handle: *mut CUipcMemHandle, address: CUdeviceptr) -> Answer {
    let Some(manager) = registry::owner(address).filter(|_| !handle.is_null()) else { return Answer::Pass };
    match ipc::issue(manager, address) {
        Some(Ok(issued)) => {
            // SAFETY: the program's out-pointer, not null.
            unsafe { *handle = issued };
            Answer::Is(CUresult::SUCCESS)
        }
        Some(Err(code)) => Answer::Is(code),
        None => Answer::Pass,
    }
}

pub(super) unsafe fn open(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) -> Answer {
    let Some(ticket) = Ticket::decode(&handle).filter(|_| !address.is_null()) else { return Answer::Pass };
    if flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS {
        return Answer::Is(CUresult::INVALID_VALUE);
    }
    let Some(site) = registry::current_site() else { return Answer::Is(CUresult::INVALID_CONTEXT) };
    ipc::open(ticket, &site)
        .map(|opened| {
            // SAFETY: the program's out-pointer, not null.
            unsafe { *address = opened };
        })
        .into()
}

pub(super) fn close(address: CUdeviceptr) -> Answer {
    ipc::close(address).map_or(Answer::Pass, Answer::Is)
}
