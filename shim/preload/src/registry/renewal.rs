//! The limits in force, put on the managers: when one is made, and when an operator asks.

use wm_abi::CUdevice;
use wm_driver::{Device, dmem};
use wm_memory::Manager;

use super::devices::label;
use super::limits::{LimitInForce, LimitSource};
use super::tables::{REGISTRY, all};
use crate::settings;

/// The limit of a new manager. `of_settings`: the one that the settings give the device.
pub(super) fn of_new(device: CUdevice, total: u64, of_settings: u64) -> LimitInForce {
    REGISTRY.limits.set_of_settings(device, of_settings);
    let limit = in_force(device, total);
    if limit.source == LimitSource::Group {
        log::info!("device {device}: at most {} MiB, by dmem.max of the control group", limit.bytes >> 20);
    }
    limit
}

fn in_force(device: CUdevice, total: u64) -> LimitInForce {
    let ceiling = settings::device_ceiling().map_or(u64::MAX, |size| size.of(total));
    REGISTRY.limits.of(device, ceiling, dmem::limits(&label(device).pci))
}

/// Asks for a limit of one device or of all, also for those that the program has not used yet.
/// `u64::MAX` lifts it. Nothing moves.
pub(crate) fn ask_limit(device: Option<CUdevice>, bytes: u64) {
    REGISTRY.limits.ask(device, bytes);
}

/// Puts the limit in force on a manager that runs, and tells it. The control groups' files are
/// read.
pub(crate) fn renew_limit(manager: &Manager<Device>) -> LimitInForce {
    let device = manager.gpu().ordinal();
    let total = label(device).total;
    let limit = in_force(device, total);
    if limit.bytes != manager.device_limit() {
        manager.limit_device(limit.bytes, capacity(manager, total, limit.bytes));
    }
    limit
}

/// The most that all tiers have together with another limit of the device than at first.
fn capacity(manager: &Manager<Device>, total: u64, limit: u64) -> u64 {
    let first = manager.settings();
    match first.capacity {
        u64::MAX => u64::MAX,
        all => all.saturating_sub(total.min(first.device_limit)).saturating_add(total.min(limit)),
    }
}

/// The same for all managers there are.
pub(crate) fn renew_limits() -> impl Iterator<Item = (&'static Manager<Device>, LimitInForce)> {
    all().map(|manager| (manager, renew_limit(manager)))
}
