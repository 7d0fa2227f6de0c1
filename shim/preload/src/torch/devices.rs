//! Devices on which PyTorch's pluggable allocator works: sets that `pluggable` writes, and that others ask.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wm_abi::CUdevice;

/// Devices whose pool was told to keep what it has.
static KEEPING: AtomicU64 = AtomicU64::new(0);

/// Devices whose primary context is held by us: once, and until the program resets the device, as the CUDA runtime holds it.
static HELD: AtomicU64 = AtomicU64::new(0);

/// The device's pool is to keep what it has. `true` the first time.
pub(crate) fn keep_first(device: CUdevice) -> bool {
    let bit = bit(device);
    KEEPING.load(Relaxed) & bit == 0 && KEEPING.fetch_or(bit, Relaxed) & bit == 0
}

/// Devices whose pool was told to keep what it has: those that something was allocated on.
pub(crate) fn keeping() -> impl Iterator<Item = CUdevice> {
    (0..64).filter(|device| KEEPING.load(Relaxed) & bit(*device) != 0)
}

/// Has anything been allocated this way?
pub(crate) fn is_any_keeping() -> bool {
    KEEPING.load(Relaxed) != 0
}

/// The device's primary context is held by us from now on; `true` if it was before.
pub(crate) fn hold(device: CUdevice) -> bool {
    HELD.fetch_or(bit(device), Relaxed) & bit(device) != 0
}

/// The program has reset a device, and with its primary context every hold on it is gone, ours too.
pub(crate) fn forget_hold(device: CUdevice) {
    HELD.fetch_and(!bit(device), Relaxed);
}

/// A device's place in a set; none beyond the largest machine.
fn bit(device: CUdevice) -> u64 {
    u32::try_from(device).ok().and_then(|device| 1u64.checked_shl(device)).unwrap_or(0)
}
