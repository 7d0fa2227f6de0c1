//! A device's context on the calling thread.
//!
//! PyTorch names the device of an allocation; the thread may be at another one, or at none:
//! autograd's threads are, and a tensor may be freed anywhere. The stream-ordered calls and the
//! null stream act on the current context, so the device's primary context is made current for
//! their duration. It is the context that the CUDA runtime uses.

use wm_abi::{CUcontext, CUdevice, CUresult, symbol};
use wm_driver::api::scope::Current;
use wm_driver::{Api, Table};

use crate::entry::trampolines::exported;
use crate::process;
use crate::subsystems::PROCESS;

/// The calling thread is at the device while this lives.
pub(super) struct DeviceGuard(
    #[expect(dead_code, reason = "put back when dropped")] Option<Current<'static>>,
);

impl DeviceGuard {
    /// Takes the thread to a device.
    ///
    /// # Errors
    /// The driver's, where the device has no context and gets none.
    pub(super) fn on(device: CUdevice) -> Result<Self, CUresult> {
        let mut current = -1;
        // SAFETY: the out-pointer is to a live local. By the export: this may be the first call of
        // the process.
        let asked = unsafe { exported::<symbol::cuCtxGetDevice>()(&mut current) };
        if asked == CUresult::SUCCESS && current == device {
            return Ok(Self(None));
        }
        let driver = process::opened().ok_or(CUresult::NOT_INITIALIZED)?;
        Ok(Self(Some(Current::make(driver, primary(driver, device)?)?)))
    }
}

/// The device's primary context. To ask for it is to retain it; every later retain is released at
/// once.
fn primary(driver: &Table, device: CUdevice) -> Result<CUcontext, CUresult> {
    let context = driver.primary_ctx_retain(device)?;
    if !PROCESS.torch.retained.insert(device) {
        let _ = driver.primary_ctx_release(device);
    }
    Ok(context)
}
