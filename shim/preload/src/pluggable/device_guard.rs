//! A device's context on the calling thread.
//!
//! PyTorch names the device of an allocation; the thread may be at another one, or at none: autograd's threads are, and a
//! tensor may be freed anywhere. The stream-ordered calls and the null stream act on the current context, so the device's primary
//! context is made current for their duration. It is the context that the CUDA runtime uses.

use wm_abi::{CUcontext, CUdevice, CUresult, symbol};

use crate::entry::trampolines::exported;
use crate::process;
use crate::torch::devices;

/// The calling thread is at the device while this lives.
pub(super) struct DeviceGuard {
    is_pushed: bool,
}

impl DeviceGuard {
    /// Takes the thread to a device.
    ///
    /// # Errors
    /// The driver's, where the device has no context and gets none.
    pub(super) fn on(device: CUdevice) -> Result<Self, CUresult> {
        let mut current = -1;
        // SAFETY: the out-pointer is to a live local. By the export: this may be the first call of the process.
        let asked = unsafe { exported::<symbol::cuCtxGetDevice>()(&mut current) };
        if asked == CUresult::SUCCESS && current == device {
            return Ok(Self { is_pushed: false });
        }
        let table = process::opened().ok_or(CUresult::NOT_INITIALIZED)?;
        // SAFETY: a handle that the driver has just given.
        unsafe { table.get::<symbol::cuCtxPushCurrent_v2>()(primary(device)?) }.ok()?;
        Ok(Self { is_pushed: true })
    }
}

impl Drop for DeviceGuard {
    fn drop(&mut self) {
        if let Some(table) = process::opened().filter(|_| self.is_pushed) {
            let mut popped = CUcontext::NULL;
            // SAFETY: pops what `on` pushed.
            let _ = unsafe { table.get::<symbol::cuCtxPopCurrent_v2>()(&mut popped) };
        }
    }
}

/// The device's primary context. Asking for it is holding it; every hold but the first is let go at once.
fn primary(device: CUdevice) -> Result<CUcontext, CUresult> {
    let table = process::opened().ok_or(CUresult::NOT_INITIALIZED)?;
    let mut context = CUcontext::NULL;
    // SAFETY: the out-pointer is to a live local.
    unsafe { table.get::<symbol::cuDevicePrimaryCtxRetain>()(&mut context, device) }.ok()?;
    if devices::hold(device) {
        // SAFETY: a function without pointers; it undoes the hold of just now.
        let _ = unsafe { table.get::<symbol::cuDevicePrimaryCtxRelease_v2>()(device) };
    }
    Ok(context)
}
