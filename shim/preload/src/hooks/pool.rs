//! Stream-ordered pools. The device's default pool is served by us; pools that a program makes stay with the driver.
//!
//! What the default pool reports is the driver's figure plus ours: a block may be of either.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use wm_abi::*;
use wm_driver::Device;
use wm_memory::Manager;

use crate::boundary::Answer;
use crate::managers;
use crate::state::driver;

/// Devices whose current pool the program has chosen.
static REPLACED: [AtomicBool; 64] = [const { AtomicBool::new(false) }; 64];

/// Has the program given this device a pool of its own for `cuMemAllocAsync`?
pub(super) fn is_replaced(device: CUdevice) -> bool {
    usize::try_from(device)
        .ok()
        .and_then(|d| REPLACED.get(d))
        .is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Is this the device's default pool?
pub(super) fn is_default(pool: CUmemoryPool, device: CUdevice) -> bool {
    default_of(device) == Some(pool)
}

/// The device's default pool; `None` where it has none.
pub(super) fn default_of(device: CUdevice) -> Option<CUmemoryPool> {
    let mut pool = CUmemoryPool::NULL;
    // SAFETY: the out-pointer is to a live local.
    unsafe { driver().get::<symbol::cuDeviceGetDefaultMemPool>()(&mut pool, device) }.ok().ok()?;
    Some(pool)
}

/// The manager behind a pool, if it is some device's default pool.
fn served(pool: CUmemoryPool) -> Option<&'static Manager<Device>> {
    managers::all().find(|manager| is_default(pool, manager.gpu().ordinal()))
}

pub(super) fn select(device: CUdevice, pool: CUmemoryPool) -> Answer {
    if let Some(flag) = usize::try_from(device).ok().and_then(|d| REPLACED.get(d)) {
        flag.store(!is_default(pool, device), Ordering::Relaxed);
    }
    Answer::Pass
}

pub(super) unsafe fn get(pool: CUmemoryPool, attribute: u32, value: *mut c_void) -> Answer {
    let Some(manager) = served(pool).filter(|_| !value.is_null()) else { return Answer::Pass };
    let usage = manager.usage();
    let ours = match attribute {
        CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => usage.reserved.total(),
        CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => usage.reserved_peak.total(),
        CU_MEMPOOL_ATTR_USED_MEM_CURRENT => usage.live.total(),
        CU_MEMPOOL_ATTR_USED_MEM_HIGH => usage.live_peak.total(),
        _ => return Answer::Pass,
    };
    // SAFETY: the program's arguments; these attributes are 64-bit counts.
    let result = unsafe { driver().get::<symbol::cuMemPoolGetAttribute>()(pool, attribute, value) };
    if result == CUresult::SUCCESS {
        // SAFETY: the driver has just written a 64-bit count there.
        unsafe { *value.cast::<u64>() += ours };
    }
    Answer::Is(result)
}

/// Writing zero to a high-water mark resets it, ours with the driver's.
pub(super) unsafe fn set(pool: CUmemoryPool, attribute: u32, _value: *mut c_void) -> Answer {
    if matches!(attribute, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH | CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        && let Some(manager) = served(pool)
    {
        manager.reset_peaks();
    }
    Answer::Pass
}

pub(super) fn trim(pool: CUmemoryPool, keep: usize) -> Answer {
    if let Some(manager) = served(pool) {
        manager.trim(keep as u64);
    }
    Answer::Pass
}

pub(super) unsafe fn grant(pool: CUmemoryPool, map: *const CUmemAccessDesc, count: usize) -> CUresult {
    // SAFETY: the program's arguments.
    let result = unsafe { driver().get::<symbol::cuMemPoolSetAccess>()(pool, map, count) };
    if result == CUresult::SUCCESS
        && let Some(manager) = served(pool)
    {
        // SAFETY: the driver has just read `count` entries there.
        let entries = if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(map, count) } };
        let readers = entries.iter().filter(|e| e.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE);
        let devices = readers.filter(|e| e.location.type_ == CU_MEM_LOCATION_TYPE_DEVICE);
        devices.for_each(|entry| managers::grant(manager.gpu().ordinal(), entry.location.id));
    }
    result
}
