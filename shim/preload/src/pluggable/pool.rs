//! The pool that PyTorch's tensors are allocated from.

use wm_abi::{CUdevice, CUmemoryPool, CUresult, symbol};

use crate::entry::trampolines::exported;

/// The device's default pool.
///
/// # Errors
/// The driver's.
pub(super) fn pool(device: CUdevice) -> Result<CUmemoryPool, CUresult> {
    let mut pool = CUmemoryPool::NULL;
    // SAFETY: the out-pointer is to a live local.
    unsafe { exported::<symbol::cuDeviceGetDefaultMemPool>()(&mut pool, device) }.ok()?;
    Ok(pool)
}
