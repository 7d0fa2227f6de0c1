//! The share of a device that tensors may have, as `torch.cuda.set_per_process_memory_fraction`
//! sets it.
//!
//! Kept as PyTorch's `cudaMallocAsync` back end keeps it: a request beyond it is out of memory,
//! wherever the bytes would have been. Threads that allocate at the same moment may overshoot it by
//! what they ask for.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wm_abi::{CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CUdevice, CUresult, symbol};

use super::pool::pool;
use crate::entry::trampolines::exported;

/// Bytes, by device.
static LIMITS: [AtomicU64; 64] = [const { AtomicU64::new(u64::MAX) }; 64];

fn limit(device: CUdevice) -> Option<&'static AtomicU64> {
    LIMITS.get(usize::try_from(device).ok()?)
}

/// Sets a device's share, 0 to 1 of all its memory. Anything else is no limit.
pub(super) fn set(device: CUdevice, fraction: f64) {
    let mut total = 0;
    // SAFETY: the out-pointer is to a live local.
    let asked = unsafe { exported::<symbol::cuDeviceTotalMem_v2>()(&mut total, device) };
    if let Some(limit) = limit(device).filter(|_| asked == CUresult::SUCCESS) {
        let is_share = (0.0..1.0).contains(&fraction);
        limit.store(if is_share { (total as f64 * fraction) as u64 } else { u64::MAX }, Relaxed);
    }
}

/// Does a request stay within the share?
///
/// # Errors
/// `OUT_OF_MEMORY` if not.
pub(super) fn admit(device: CUdevice, bytes: usize) -> Result<(), CUresult> {
    let limit = limit(device).map_or(u64::MAX, |limit| limit.load(Relaxed));
    let fits = limit == u64::MAX || used(device)?.saturating_add(bytes as u64) <= limit;
    if fits { Ok(()) } else { Err(CUresult::OUT_OF_MEMORY) }
}

/// Bytes that the device's pool has given out.
fn used(device: CUdevice) -> Result<u64, CUresult> {
    let mut bytes = 0u64;
    let get = exported::<symbol::cuMemPoolGetAttribute>();
    // SAFETY: this attribute is a 64-bit count, written to a live local.
    unsafe { get(pool(device)?, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, (&raw mut bytes).cast()) }.ok()?;
    Ok(bytes)
}
