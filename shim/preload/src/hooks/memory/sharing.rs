//! Legacy IPC: handles of our blocks are ours, all others the driver's.
//!
//! Where PyTorch has expandable segments because the library chose them, a program that passes
//! addresses of tensors on finds pieces of `cuMemCreate` there, for which no driver issues handles.
//! Bare it would have found memory of `cudaMalloc`. So such handles are ours too.

use std::ffi::c_uint;

use wm_abi::{CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, CUdeviceptr, CUipcMemHandle, CUresult, symbol};

use super::adopted;
use crate::hooks::call::boundary::Outcome;
use crate::ipc::Ticket;
use crate::physical::{PieceRun, book, cache};
use crate::process::driver;
use crate::registry;
use crate::subsystems::PROCESS;

/// `cuIpcGetMemHandle`.
pub(in crate::hooks) unsafe fn ipc_get_mem_handle(
    handle: *mut CUipcMemHandle,
    address: CUdeviceptr,
) -> Outcome {
    if handle.is_null() {
        return Outcome::Forward;
    }
    let issued = match registry::owner(address) {
        Some(manager) => PROCESS.ipc.issue(manager, address),
        None => run_of_segment(address).map(|run| PROCESS.ipc.issue_pieces(&run)),
    };
    match issued {
        Some(Ok(issued)) => {
            // SAFETY: the program's out-pointer, not null.
            unsafe { *handle = issued };
            Outcome::Return(CUresult::SUCCESS)
        }
        Some(Err(code)) => Outcome::Return(code),
        None => Outcome::Forward,
    }
}

/// The pieces from the one on that an address is in. The driver says where that begins, as it says
/// to programs: from there they count to their tensor.
fn run_of_segment(address: CUdeviceptr) -> Option<PieceRun> {
    if !book().is_mapped(address) || !PROCESS.torch.chose_segments() {
        return None;
    }
    let (mut base, mut bytes) = (0, 0);
    let range = driver().get::<symbol::cuMemGetAddressRange_v2>();
    // SAFETY: the places are live locals.
    let found = unsafe { range(&raw mut base, &raw mut bytes, address) };
    let run = if found == CUresult::SUCCESS { book().run(base) } else { None };
    // The receiver keeps the memory that it gets: none of it moves any more, or serves a later
    // piece. If it stays shared, the driver issues no handle, as bare for such memory.
    let run = run.filter(|run| adopted::disown_in(run.base, run.bytes(), None));
    run.iter().for_each(|run| cache().share_range(run.base, run.bytes()));
    run
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
