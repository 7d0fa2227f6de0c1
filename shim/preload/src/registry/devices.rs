//! Facts about devices, from the driver and the system.

use wm_abi::{CUcontext, CUdevice};
use wm_driver::Api;
use wm_driver::api::scope::Current;

use super::tables::{Label, REGISTRY};
use crate::process::driver;

/// The calling thread's device; `None` without a context.
pub(crate) fn current_device() -> Option<CUdevice> {
    driver().ctx_device().ok()
}

/// The device of a context that need not be current.
pub(crate) fn device_of(context: CUcontext) -> Option<CUdevice> {
    let _current = Current::make(driver(), context).ok()?;
    current_device()
}

/// How many devices there are; `None` where the driver cannot say, because nothing has initialised
/// it.
pub(crate) fn device_count() -> Option<CUdevice> {
    driver().device_count().ok()
}

/// The device's primary context, if it is active.
pub(crate) fn active_primary(device: CUdevice) -> Option<CUcontext> {
    if !is_active(device) {
        return None;
    }
    // A retain of an active context and its release at once change nothing.
    let context = driver().primary_ctx_retain(device).ok()?;
    driver().primary_ctx_release(device).ok().map(|()| context)
}

/// Is the device's primary context active? Where the driver does not tell, it is.
pub(crate) fn is_active(device: CUdevice) -> bool {
    driver().primary_ctx_state(device).map_or(true, |(_, active)| active != 0)
}

/// The device's label, as it was when its manager was made: at the end of the process the driver
/// answers no more.
pub(crate) fn label(device: CUdevice) -> &'static Label {
    const UNKNOWN: &Label = &Label { name: String::new(), uuid: String::new(), pci: String::new(), total: 0 };
    let label = usize::try_from(device).ok().and_then(|index| REGISTRY.labels.get(index));
    label.map_or(UNKNOWN, |label| {
        label.get_or_init(|| Label {
            name: driver().device_name(device).unwrap_or_default(),
            uuid: uuid(device).unwrap_or_default(),
            pci: driver().device_pci(device),
            total: driver().device_total_mem(device).unwrap_or(0) as u64,
        })
    })
}

/// A device's identity with the prefix that tells a part of a GPU from a whole one.
fn uuid(device: CUdevice) -> Option<String> {
    let uuid = driver().device_uuid(device).ok()?;
    let is_whole = driver().gpu_uuid(device).map_or(true, |gpu| gpu == uuid);
    Some(format!("{}-{uuid}", if is_whole { "GPU" } else { "MIG" }))
}

/// Alignment that the driver gives the rows of a pitched allocation, bytes.
pub(crate) fn pitch_alignment(device: CUdevice) -> usize {
    const FALLBACK: usize = 512;
    let asked = driver().device_attribute(wm_abi::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device);
    asked
        .ok()
        .and_then(|value| usize::try_from(value).ok())
        .filter(|value| value.is_power_of_two())
        .unwrap_or(FALLBACK)
}
