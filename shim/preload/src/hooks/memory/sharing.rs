//! Legacy IPC: handles of our blocks are ours, all others the driver's.

use std::ffi::c_uint;

use wm_abi::{CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, CUdeviceptr, CUipcMemHandle, CUresult};

use crate::hooks::call::boundary::Outcome;
use crate::ipc::Ticket;
use crate::registry;
use crate::subsystems::PROCESS;

/// `cuIpcGetMemHandle`.
pub(in crate::hooks) unsafe fn ipc_get_mem_handle(
    handle: *mut CUipcMemHandle,
    address: CUdeviceptr,
) -> Outcome {
    let Some(manager) = registry::owner(address).filter(|_| !handle.is_null()) else {
        return Outcome::Forward;
    };
    match PROCESS.ipc.issue(manager, address) {
        Some(Ok(issued)) => {
            // SAFETY: the program's out-pointer, not null.
            unsafe { *handle = issued };
            Outcome::Return(CUresult::SUCCESS)
        }
        Some(Err(code)) => Outcome::Return(code),
        None => Outcome::Forward,
    }
}

/// `cuIpcOpenMemHandle`.
pub(in crate::hooks) unsafe fn ipc_open_mem_handle(
    address: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: c_uint,
) -> Outcome {
    let Some(ticket) = Ticket::decode(&handle).filter(|_| !address.is_null()) else {
        return Outcome::Forward;
    };
    if flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS {
        return Outcome::Return(CUresult::INVALID_VALUE);
    }
    let Some(site) = registry::current_site() else { return Outcome::Return(CUresult::INVALID_CONTEXT) };
    PROCESS
        .ipc
        .open(ticket, &site)
        .map(|opened| {
            // SAFETY: the program's out-pointer, not null.
            unsafe { *address = opened };
        })
        .into()
}

/// `cuIpcCloseMemHandle`.
pub(in crate::hooks) fn ipc_close_mem_handle(address: CUdeviceptr) -> Outcome {
    PROCESS.ipc.close(address).map_or(Outcome::Forward, Outcome::Return)
}
