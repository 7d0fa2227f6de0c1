//! Stream-ordered pools. We serve each device's default pool; pools that a program makes stay with
//! the driver.
//!
//! The default pool reports the sum of the driver's figure and ours, because both may have given
//! out blocks of it.

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use wm_abi::*;
use wm_driver::{Api, Device};
use wm_memory::{Manager, Usage};

use super::peer_access;
use crate::gate::GATE;
use crate::hooks::call::boundary::Outcome;
use crate::idle::{self, IdleKind};
use crate::process::{PROCESS_HOT, driver};
use crate::registry::{self, REGISTRY};

/// The device's bit in a set of devices; `None` for an ordinal that no machine has.
#[inline]
fn bit(device: CUdevice) -> Option<u64> {
    1u64.checked_shl(u32::try_from(device).ok()?)
}

/// Do we serve `cuMemAllocAsync` on this device? Not once the program has given the device another
/// pool, nor while the library is detached.
#[inline]
pub(in crate::hooks) fn serves(device: CUdevice) -> bool {
    bit(device).is_some_and(|bit| {
        let serves = PROCESS_HOT.replaced.load(Relaxed) & bit == 0 && !GATE.lets_driver_allocate();
        if serves {
            mark_used(bit);
        }
        serves
    })
}

/// Writes only the first time, so that the line stays in the cache of every core.
#[inline]
fn mark_used(bit: u64) {
    if PROCESS_HOT.used.load(Relaxed) & bit == 0 {
        PROCESS_HOT.used.fetch_or(bit, Relaxed);
    }
}

/// Do we serve this pool? Only if it is the device's default pool.
pub(in crate::hooks) fn serves_from(pool: CUmemoryPool, device: CUdevice) -> bool {
    !GATE.lets_driver_allocate()
        && is_default(pool, device)
        && bit(device).is_some_and(|bit| {
            mark_used(bit);
            true
        })
}

/// The host has waited for the device. Our pool gives back memory above the release threshold, as
/// the driver's pool does then.
pub(in crate::hooks) fn trim_to_threshold(manager: &Manager<Device>) {
    let device = manager.gpu().ordinal();
    let used = bit(device).is_some_and(|bit| PROCESS_HOT.used.load(Relaxed) & bit != 0);
    let Some(keep) = REGISTRY.release_thresholds.get(device).filter(|_| used) else { return };
    if keep != u64::MAX {
        let usage = manager.usage();
        if reserved(&usage) > keep {
            manager.trim(keep.saturating_add(outside_pool(&usage)));
        }
    }
}

/// Bytes that the pool holds: all memory except the blocks of `cuMemAlloc`. If there are only such
/// blocks, the free rest of their handles does not count either.
fn reserved(usage: &Usage) -> u64 {
    let plain = usage.live.total().saturating_sub(usage.pooled);
    let is_used = usage.pooled > 0 || usage.cached > 0 || usage.idle.total() > 0;
    if is_used { held(usage).saturating_sub(plain) } else { 0 }
}

/// Bytes that we hold; memory that is idle elsewhere is no part of the device's pool.
fn held(usage: &Usage) -> u64 {
    usage.reserved.total() - usage.idle.elsewhere()
}

/// Bytes that we hold and the pool does not.
fn outside_pool(usage: &Usage) -> u64 {
    held(usage) - reserved(usage)
}

/// A block of `cuMemAlloc` was freed. Idle memory above the amount that is kept goes back to the
/// driver, at once or after it has been idle for a while.
pub(in crate::hooks) fn give_back_idle(manager: &Manager<Device>) {
    if let Some(at) = give_back_due(manager) {
        idle::look_at(at, IdleKind::Blocks, || registry::all().filter_map(give_back_due).min());
    }
}

/// Gives back the memory that has been idle for long enough; the time at which more will have been.
/// That of the device stays if the program uses the default pool and told it to keep everything,
/// because pool and blocks share their memory.
fn give_back_due(manager: &Manager<Device>) -> Option<Instant> {
    let device = manager.gpu().ordinal();
    let used = bit(device).is_some_and(|bit| PROCESS_HOT.used.load(Relaxed) & bit != 0);
    let keeps_all = REGISTRY.release_thresholds.get(device) == Some(u64::MAX);
    manager.give_back_idle(used && keeps_all)
}

/// Is this the device's default pool?
fn is_default(pool: CUmemoryPool, device: CUdevice) -> bool {
    default_of(device) == Some(pool)
}

/// The device's default pool; `None` where it has none.
pub(in crate::hooks) fn default_of(device: CUdevice) -> Option<CUmemoryPool> {
    driver().device_default_mem_pool(device).ok()
}

/// The manager behind a pool, if it is some device's default pool.
fn manager_of(pool: CUmemoryPool) -> Option<&'static Manager<Device>> {
    registry::all().find(|manager| is_default(pool, manager.gpu().ordinal()))
}

/// `cuDeviceSetMemPool`.
pub(in crate::hooks) fn device_set_mem_pool(device: CUdevice, pool: CUmemoryPool) -> CUresult {
    driver().device_set_mem_pool(device, pool).inspect(|()| record_current(device, pool)).into()
}

fn record_current(device: CUdevice, pool: CUmemoryPool) {
    let Some(bit) = bit(device) else { return };
    if is_default(pool, device) {
        PROCESS_HOT.replaced.fetch_and(!bit, Relaxed);
    } else {
        PROCESS_HOT.replaced.fetch_or(bit, Relaxed);
    }
}

/// `cuMemPoolDestroy`. If a device's current pool is destroyed, the default pool becomes current
/// again.
pub(in crate::hooks) fn mem_pool_destroy(pool: CUmemoryPool) -> CUresult {
    let result = CUresult::from(driver().mem_pool_destroy(pool));
    let replaced = PROCESS_HOT.replaced.load(Relaxed);
    if result == CUresult::SUCCESS && replaced != 0 {
        let chose = |device: &CUdevice| bit(*device).is_some_and(|bit| replaced & bit != 0);
        let devices = (0..u64::BITS as CUdevice).filter(chose);
        devices.for_each(|device| {
            current_of(device).into_iter().for_each(|current| record_current(device, current))
        });
    }
    result
}

/// The device's current pool.
fn current_of(device: CUdevice) -> Option<CUmemoryPool> {
    driver().device_mem_pool(device).ok()
}

/// `cuMemSetMemPool`: names the device by location. `cuMemAllocAsync` uses the pool of pinned
/// memory only.
pub(in crate::hooks) unsafe fn mem_set_mem_pool(
    location: *mut CUmemLocation,
    kind: u32,
    pool: CUmemoryPool,
) -> CUresult {
    // SAFETY: the program's arguments.
    let result = unsafe { driver().get::<symbol::cuMemSetMemPool>()(location, kind, pool) };
    if result == CUresult::SUCCESS && kind == CU_MEM_ALLOCATION_TYPE_PINNED {
        // SAFETY: the driver has just read a location there.
        let location = unsafe { *location };
        if location.type_ == CU_MEM_LOCATION_TYPE_DEVICE {
            record_current(location.id, pool);
        }
    }
    result
}

/// `cuMemPoolGetAttribute`.
pub(in crate::hooks) unsafe fn mem_pool_get_attribute(
    pool: CUmemoryPool,
    attribute: u32,
    value: *mut c_void,
) -> Outcome {
    let Some(manager) = manager_of(pool).filter(|_| !value.is_null()) else { return Outcome::Forward };
    let usage = manager.usage();
    let ours = match attribute {
        CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => reserved(&usage),
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => usage.reserved_peak.total() - outside_pool(&usage),
        CU_MEMPOOL_ATTR_USED_MEM_CURRENT => usage.pooled,
        CU_MEMPOOL_ATTR_USED_MEM_HIGH => usage.pooled_peak,
        _ => return Outcome::Forward,
    };
    // SAFETY: the program's arguments; these attributes are 64-bit counts.
    let result = unsafe { driver().get::<symbol::cuMemPoolGetAttribute>()(pool, attribute, value) };
    if result == CUresult::SUCCESS {
        // SAFETY: the driver has just written a 64-bit count there.
        unsafe { *value.cast::<u64>() += ours };
    }
    Outcome::Return(result)
}

/// `cuMemPoolSetAttribute`. A program resets a high-water mark by setting it to zero: ours is reset
/// too. A release threshold holds for our memory too.
pub(in crate::hooks) unsafe fn mem_pool_set_attribute(
    pool: CUmemoryPool,
    attribute: u32,
    value: *mut c_void,
) -> CUresult {
    // SAFETY: the program's arguments.
    let result = unsafe { driver().get::<symbol::cuMemPoolSetAttribute>()(pool, attribute, value) };
    if result == CUresult::SUCCESS
        && let Some(device) = device_of(pool)
    {
        match attribute {
            CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => {
                registry::existing(device).into_iter().for_each(Manager::reset_reserved_peak);
            }
            CU_MEMPOOL_ATTR_USED_MEM_HIGH => {
                registry::existing(device).into_iter().for_each(Manager::reset_live_peak);
            }
            CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => {
                // SAFETY: the driver has just read a 64-bit value there.
                REGISTRY.release_thresholds.set(device, unsafe { *value.cast::<u64>() });
            }
            CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
                // SAFETY: the driver has just read a 32-bit value there.
                registry::allow_dependencies(device, unsafe { *value.cast::<i32>() } != 0);
            }
            _ => {}
        }
    }
    result
}

/// The device of a default pool. The device may have no manager yet: a program can set the pool up
/// before it allocates.
fn device_of(pool: CUmemoryPool) -> Option<CUdevice> {
    (0..registry::device_count()?).find(|device| is_default(pool, *device))
}

/// `cuMemPoolTrimTo`.
pub(in crate::hooks) fn mem_pool_trim_to(pool: CUmemoryPool, keep: usize) -> Outcome {
    if let Some(manager) = manager_of(pool) {
        let usage = manager.usage();
        manager.trim((keep as u64).saturating_add(outside_pool(&usage)));
        give_back_idle(manager);
    }
    Outcome::Forward
}

/// `cuMemPoolSetAccess`.
pub(in crate::hooks) unsafe fn mem_pool_set_access(
    pool: CUmemoryPool,
    map: *const CUmemAccessDesc,
    count: usize,
) -> CUresult {
    // SAFETY: the program's arguments.
    let result = unsafe { driver().get::<symbol::cuMemPoolSetAccess>()(pool, map, count) };
    if result == CUresult::SUCCESS
        && count > 0
        && let Some(owner) = device_of(pool)
    {
        // SAFETY: the driver has just read `count` entries there.
        let entries = unsafe { std::slice::from_raw_parts(map, count) };
        let readers = entries.iter().filter(|e| e.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE);
        let devices = readers.filter(|e| e.location.type_ == CU_MEM_LOCATION_TYPE_DEVICE);
        devices.for_each(|entry| peer_access::grant(owner, entry.location.id));
    }
    result
}
