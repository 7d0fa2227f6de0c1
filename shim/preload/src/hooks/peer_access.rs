//! Peer access: `cuCtxEnablePeerAccess` covers the driver's own memory; our mappings have rights of their own.
//!
//! A right covers the blocks of the device's manager, and what other processes' memory is open there. A copy between devices needs one
//! too where an end is mapped memory: [`make_reachable`] grants it before the copy is made.

use std::ffi::c_uint;
use std::sync::OnceLock;

use wm_abi::{CUcontext, CUdevice, CUresult, symbol};

use super::exports;
use crate::process::driver;
use crate::{ipc, registry};
/// `cuCtxEnablePeerAccess`.
pub(super) unsafe fn ctx_enable_peer_access(peer: CUcontext, flags: c_uint) -> CUresult {
    // SAFETY: the program's arguments; no pointers but the handle.
    let result = unsafe { driver().get::<symbol::cuCtxEnablePeerAccess>()(peer, flags) };
    if matches!(result, CUresult::SUCCESS | CUresult::PEER_ACCESS_ALREADY_ENABLED)
        && let Some((owner, from)) = registry::device_of(peer).zip(registry::current_device())
    {
        grant(owner, from);
    }
    result
}

/// `from` may access `owner`'s memory from now on: present blocks, future ones, and those of other processes that are open there.
pub(super) fn grant(owner: CUdevice, from: CUdevice) {
    if let Some((manager, own)) = registry::grant(owner, from) {
        let opened = ipc::refresh_access(manager.gpu());
        if let Err(code) = own.and(opened) {
            log::warn!("device {from} cannot reach some blocks of device {owner}: {code}");
        }
    }
}

/// Has this process more than one device? With one, no copy goes to a peer, and what is intercepted for that is withdrawn.
pub(super) fn has_several_devices() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return *known;
    }
    // A driver that cannot say yet is asked again.
    let Some(count) = registry::device_count() else { return false };
    if count < 2 {
        exports::withdraw_copies();
    }
    *KNOWN.get_or_init(|| count > 1)
}

/// Lets the calling thread's device reach the block at an address, for a copy between devices: the driver's own memory needs
/// no peer access for that, mapped memory does. `false`: these devices cannot. Costs next to nothing where there is one device,
/// or where it is so already.
pub(super) fn make_reachable(address: u64) -> bool {
    if !has_several_devices() {
        return true;
    }
    let Some(manager) = registry::owner(address) else { return true };
    let ordinal = manager.gpu().ordinal();
    let Some(here) = registry::current_device().filter(|device| *device != ordinal) else { return true };
    if manager.gpu().admits(here) {
        return true;
    }
    let able = registry::can_access_peer(here, ordinal);
    if able {
        grant(ordinal, here);
    }
    able
}
