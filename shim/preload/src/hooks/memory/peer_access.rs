//! Peer access: `cuCtxEnablePeerAccess` covers the driver's own memory; our mappings have rights of
//! their own.
//!
//! Access is granted to the blocks of a device's manager, and to the memory of other processes that
//! is open there. A copy between devices needs it too if an end is mapped memory:
//! [`make_reachable`] grants it before the copy is made.

use std::ffi::c_uint;

use wm_abi::{CUcontext, CUdevice, CUresult};
use wm_driver::{Api, Device};
use wm_memory::Manager;

use crate::hooks::call::exports;
use crate::process::driver;
use crate::registry::{self, REGISTRY};
use crate::subsystems::PROCESS;

/// `cuCtxEnablePeerAccess`.
pub(in crate::hooks) unsafe fn ctx_enable_peer_access(peer: CUcontext, flags: c_uint) -> CUresult {
    let result = CUresult::from(driver().ctx_enable_peer_access(peer, flags));
    if matches!(result, CUresult::SUCCESS | CUresult::PEER_ACCESS_ALREADY_ENABLED)
        && let Some((owner, from)) = registry::device_of(peer).zip(registry::current_device())
    {
        grant(owner, from);
    }
    result
}

/// `from` may access `owner`'s memory from now on: present blocks, future ones, and those of other
/// processes that are open there.
pub(in crate::hooks) fn grant(owner: CUdevice, from: CUdevice) {
    if let Some((manager, own)) = registry::grant(owner, from) {
        let opened = PROCESS.ipc.refresh_access(manager.gpu().ordinal());
        if let Err(code) = own.and(opened) {
            log::warn!("device {from} cannot reach some blocks of device {owner}: {code}");
        }
    }
}

/// Has this process more than one device? If not, no copy goes to a peer, and the hooks that are
/// there for such copies are withdrawn.
pub(in crate::hooks) fn has_several_devices() -> bool {
    if let Some(known) = REGISTRY.has_several_devices.get() {
        return *known;
    }
    // The driver cannot tell before cuInit: it is asked again at the next call.
    let Some(count) = registry::device_count() else { return false };
    if count < 2 {
        exports::withdraw_copies();
    }
    *REGISTRY.has_several_devices.get_or_init(|| count > 1)
}

/// Lets the calling thread's device access the blocks of a manager. A copy between devices needs
/// that if an end is mapped memory; the driver's own memory needs no peer access. `false`: these
/// devices cannot. Cheap if access was granted before.
pub(in crate::hooks) fn make_reachable(owner: &Manager<Device>) -> bool {
    let ordinal = owner.gpu().ordinal();
    let Some(here) = registry::current_device().filter(|device| *device != ordinal) else { return true };
    if owner.gpu().admits(here) {
        return true;
    }
    let able = registry::can_access_peer(here, ordinal);
    if able {
        grant(ordinal, here);
    }
    able
}
