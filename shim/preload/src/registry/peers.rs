//! Which devices may access which others' memory.
//!
//! A right that was granted before the device had a manager holds for the manager that is made
//! later.

use wm_abi::{CUdevice, CUresult};
use wm_driver::{Api, Device};
use wm_memory::Manager;

use super::devices::device_count;
use super::peer_rights::PeerRight;
use super::tables::{REGISTRY, existing};
use crate::process::driver;

/// Devices whose memory this one can reach.
pub(super) fn reachable(device: CUdevice) -> Vec<CUdevice> {
    (0..device_count().unwrap_or(0))
        .filter(|other| *other != device && can_access_peer(device, *other))
        .collect()
}

/// Can `device` access the memory of `other`?
pub(crate) fn can_access_peer(device: CUdevice, other: CUdevice) -> bool {
    driver().device_can_access_peer(device, other) == Ok(1)
}

/// `from` may access `owner`'s memory from now on: present blocks of the device's manager and
/// future ones. Answers with the manager, if there is one that did not know, and whether it could
/// grant access to its present blocks.
pub(crate) fn grant(
    owner: CUdevice,
    from: CUdevice,
) -> Option<(&'static Manager<Device>, Result<(), CUresult>)> {
    REGISTRY.peers.insert(PeerRight { owner, from });
    let manager = existing(owner)?;
    manager.gpu().admit_peer(from).then(|| (manager, manager.refresh_access()))
}
