//! How a device's manager is made, and with which limits.
//!
//! A device that cannot be managed is tried once: its memory stays with the driver.

use std::sync::Arc;

use wm_abi::{CUcontext, CUdevice, CUresult};
use wm_driver::{Api, Device, Gpu, Tier, Unsupported, host};
use wm_memory::Manager;
use wm_schema::black_box::LimitWords;

use super::contexts::living_contexts;
use super::managers::DEVICES;
use super::tables::{Callbacks, REGISTRY, existing, host_of_others};
use super::{budget, devices, peers, renewal};
use crate::black_box;
use crate::process::{driver, streams};
use crate::settings::{self, Guard, Overflow};

/// The manager of a device, made now if there is none. `context` is one of the device's, current on
/// this thread or not.
pub(super) fn manager(device: CUdevice, context: CUcontext) -> Option<&'static Manager<Device>> {
    existing(device).or_else(|| create(device, context))
}

/// Why a device has no manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Unmanaged {
    #[error("no hooks are installed")]
    NoHooks,
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    #[error("device {device}: {code}")]
    UnknownSize { device: CUdevice, code: CUresult },
}

fn create(device: CUdevice, context: CUcontext) -> Option<&'static Manager<Device>> {
    let index = usize::try_from(device).ok().filter(|index| *index < DEVICES)?;
    if REGISTRY.unmanaged.contains(device) {
        return None;
    }
    if let Some(manager) = REGISTRY.managers.wake(index) {
        manager.gpu().begin_again(context);
        manager.reset_live_peak();
        manager.reset_reserved_peak();
        manager.allow_dependencies(!REGISTRY.independent.contains(device));
        renewal::renew_limit(manager);
        return Some(REGISTRY.managers.publish(index, manager));
    }
    let built = REGISTRY.callbacks.get().ok_or(Unmanaged::NoHooks);
    match built.and_then(|callbacks| Ok((build(device, context, callbacks)?, callbacks))) {
        Ok((manager, callbacks)) => {
            manager.allow_dependencies(!REGISTRY.independent.contains(device));
            let published = REGISTRY.managers.publish(index, Box::leak(manager));
            (callbacks.on_create)();
            Some(published)
        }
        Err(reason) => {
            REGISTRY.unmanaged.insert(device);
            log::warn!("{reason}: its memory stays with the driver");
            None
        }
    }
}

/// Sets whether internal dependencies are allowed. The device need not have a manager yet.
pub(crate) fn allow_dependencies(device: CUdevice, allowed: bool) {
    if allowed {
        REGISTRY.independent.remove(device);
    } else {
        REGISTRY.independent.insert(device);
    }
    existing(device).into_iter().for_each(|manager| manager.allow_dependencies(allowed));
}

/// A manager on the heap: threads with little stack come here, and an unoptimised build has a copy
/// of each value that is moved.
fn build(
    device: CUdevice,
    context: CUcontext,
    callbacks: &Callbacks,
) -> Result<Box<Manager<Device>>, Unmanaged> {
    let gpu = Device::new(driver(), streams(), device, context)?
        .beside(host_of_others, callbacks.on_shortage, callbacks.on_overflow)
        .with_idle_host_memory(callbacks.idle_host_memory)
        .with_holds(callbacks.may_be_held)
        .with_fingerprints(callbacks.fingerprints);
    let gpu = if (callbacks.knows_contexts)() { gpu.with_contexts(living_contexts) } else { gpu };
    for from in REGISTRY.peers.of_owner(device) {
        gpu.admit_peer(from);
    }
    if settings::load().guard == Guard::Page {
        gpu.avoid_old_addresses();
    }
    // Without a context on the device only this is told.
    let told = if context.is_null() {
        driver().device_total_mem(device).map(|total| total as u64)
    } else {
        gpu.memory_info().map(|(_, total)| total)
    };
    let total = told.map_err(|code| Unmanaged::UnknownSize { device, code })?;
    let limits = manager_settings(device, total);
    let gpu = gpu.leaving(host::reserve(limits.host_limit, host::whole()));
    let label = devices::label(device);
    budget::tell(device, total, &limits);
    let host_budget = REGISTRY.host_budget.get_or_init(Arc::default);
    let sizes = LimitWords { total, limit: limits.device_limit.min(total), headroom: limits.headroom };
    let shown = black_box::device(device, [&label.name, &label.uuid, &label.pci], &sizes);
    let gpu = gpu.telling(callbacks.on_change);
    Ok(Box::new(Manager::sharing(gpu, limits, Arc::clone(host_budget), shown)))
}

/// The settings' limits for a device of `total` bytes.
fn manager_settings(device: CUdevice, total: u64) -> wm_memory::ManagerSettings {
    let settings = settings::load();
    let bytes = |size: Option<settings::Size>, default| size.map_or(default, |size| size.of(total));
    let wanted = budget::BudgetSettings {
        limit: settings.device_limit,
        headroom: settings.headroom,
        ceiling: settings::device_ceiling(),
    };
    let budget = budget::of(device, total, wanted);
    let limit = renewal::of_new(device, total, budget.limit).bytes;
    let host_limit = settings.host_limit.map_or(u64::MAX, |size| size.of(host::whole()));
    let peer_limit = bytes(settings.peer_limit, u64::MAX);
    let overflow: Vec<Tier> = settings.overflow.iter().flat_map(|tier| tiers(*tier, device)).collect();
    let most = |tier: &Tier| match tier {
        Tier::Host => host_limit,
        Tier::Peer(other) => peer_limit.min(total_of(*other)),
        Tier::Device => 0,
    };
    wm_memory::ManagerSettings {
        capacity: overflow.iter().map(most).fold(total.min(limit), u64::saturating_add),
        device_limit: limit,
        headroom: budget.headroom,
        keep_idle: bytes(settings.keep_idle, 512 << 20),
        keep_most: total / 2,
        host_limit,
        peer_limit,
        overflow,
        stitch_views: stitch_views(settings),
        // With moves from the first shortage on: `Manager::expect_moves`. A program that fits keeps
        // all of the device. In a pause all memory moves, and large handles go faster.
        movable: settings.may_pause(),
        // By default blocks keep large handles, which are made sooner.
        chunked: settings.dedup == settings::Dedup::On,
        kept_copies: settings.kept_copies,
        verify_moves: settings.verify == settings::Verify::Moves,
    }
}

/// Bytes of a device; all there may be where the driver does not tell.
fn total_of(device: CUdevice) -> u64 {
    driver().device_total_mem(device).map_or(u64::MAX, |bytes| bytes as u64)
}

/// No stitched view is kept with page guards: a guarded block's view cannot serve the next block.
fn stitch_views(settings: &settings::Settings) -> usize {
    if settings.guard == Guard::Page { 0 } else { wm_memory::ManagerSettings::default().stitch_views }
}

fn tiers(overflow: Overflow, device: CUdevice) -> Vec<Tier> {
    match overflow {
        Overflow::Host => vec![Tier::Host],
        Overflow::Peer => peers::reachable(device).into_iter().map(Tier::Peer).collect(),
    }
}
