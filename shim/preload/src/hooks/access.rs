//! Peer access: `cuCtxEnablePeerAccess` covers the driver's own memory; our mappings have rights of their own.

use std::ffi::c_uint;

use wm_abi::{CUcontext, CUresult, symbol};

use crate::managers;
use crate::process::driver;

pub(super) unsafe fn enable(peer: CUcontext, flags: c_uint) -> CUresult {
    // SAFETY: the program's arguments; no pointers but the handle.
    let result = unsafe { driver().get::<symbol::cuCtxEnablePeerAccess>()(peer, flags) };
    if matches!(result, CUresult::SUCCESS | CUresult::PEER_ACCESS_ALREADY_ENABLED)
        && let Some((owner, from)) = managers::device_of(peer).zip(managers::current_device())
    {
        managers::grant(owner, from);
    }
    result
}
