//! The share of a device that tensors may have, as `torch.cuda.set_per_process_memory_fraction`
//! sets it.
//!
//! The rule is that of PyTorch's `cudaMallocAsync` back end: a request beyond it is out of memory,
//! wherever the bytes would have been. Threads that allocate at the same moment may overshoot it by
//! the sizes of their requests.

use wm_abi::{CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CUdevice, CUresult, symbol};

use super::pool::pool;
use crate::entry::trampolines::exported;
use crate::subsystems::PROCESS;

/// Sets a device's share, 0 to 1 of all its memory. Anything else is no limit.
pub(super) fn set(device: CUdevice, fraction: f64) {
    let mut total = 0;
    // SAFETY: the out-pointer is to a live local.
    let asked = unsafe { exported::<symbol::cuDeviceTotalMem_v2>()(&mut total, device) };
    if asked == CUresult::SUCCESS {
        PROCESS.torch.limits.set(device, bytes_of(fraction, total));
    }
}

/// A share in bytes; `u64::MAX`: no limit.
fn bytes_of(fraction: f64, total: usize) -> u64 {
    if (0.0..1.0).contains(&fraction) { (total as f64 * fraction) as u64 } else { u64::MAX }
}

/// Does a request stay within the share?
///
/// # Errors
/// `OUT_OF_MEMORY` if not.
pub(super) fn admit(device: CUdevice, bytes: usize) -> Result<(), CUresult> {
    let limit = PROCESS.torch.limits.get(device).unwrap_or(u64::MAX);
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

#[cfg(test)]
mod tests {
    //! Hazard (out of memory): a program that asks for all of a device, or for nonsense, gets none.
    use super::*;

    #[test]
    fn only_a_true_share_is_a_limit() {
        assert_eq!([0.0, 0.5].map(|fraction| bytes_of(fraction, 1 << 30)), [0, 1 << 29]);
        for fraction in [1.0, 1.5, -0.1, f64::NAN, f64::INFINITY] {
            assert_eq!(bytes_of(fraction, 1 << 30), u64::MAX, "{fraction}");
        }
    }
}
