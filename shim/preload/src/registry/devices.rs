//! What the driver and the system say of devices.

use std::sync::OnceLock;

use wm_abi::{CUcontext, CUdevice, symbol};
use wm_driver::device::device_attribute;

use super::managers::DEVICES;
use crate::process::driver;

/// The calling thread's device; `None` without a context.
pub(crate) fn current_device() -> Option<CUdevice> {
    let mut device = 0;
    // SAFETY: the out-pointer is to a live local.
    unsafe { driver().get::<symbol::cuCtxGetDevice>()(&mut device) }.ok().ok()?;
    Some(device)
}

/// The device of a context that need not be current.
pub(crate) fn device_of(context: CUcontext) -> Option<CUdevice> {
    // SAFETY: a handle the driver checks; what is pushed is popped.
    unsafe { driver().get::<symbol::cuCtxPushCurrent_v2>()(context) }.ok().ok()?;
    let device = current_device();
    let mut popped = CUcontext::NULL;
    // SAFETY: as above.
    let _ = unsafe { driver().get::<symbol::cuCtxPopCurrent_v2>()(&mut popped) };
    device
}

/// How many devices there are; `None` where the driver cannot say, because nothing has initialised it.
pub(crate) fn device_count() -> Option<CUdevice> {
    let mut count = 0;
    // SAFETY: the out-pointer is to a live local.
    unsafe { driver().get::<symbol::cuDeviceGetCount>()(&mut count) }.ok().ok()?;
    Some(count)
}

/// Bytes of the machine's memory.
pub(super) fn machine_memory() -> u64 {
    // SAFETY: two questions to the system without arguments.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0) * u64::try_from(size).unwrap_or(0)
}

/// A device's name and size, for logs and statistics.
#[derive(Debug)]
pub(crate) struct Label {
    pub(crate) name: String,
    /// All of its memory, bytes; 0 where the driver does not tell.
    pub(crate) total: u64,
}

/// The device's label, as it was when its manager was made: at the end of the process the driver answers no more.
pub(crate) fn label(device: CUdevice) -> &'static Label {
    static LABELS: [OnceLock<Label>; DEVICES] = [const { OnceLock::new() }; DEVICES];
    static UNKNOWN: Label = Label { name: String::new(), total: 0 };
    let label = usize::try_from(device).ok().and_then(|index| LABELS.get(index));
    label.map_or(&UNKNOWN, |label| {
        label.get_or_init(|| Label { name: name(device), total: total_memory(device) })
    })
}

fn name(device: CUdevice) -> String {
    let mut name = [0u8; 128];
    // SAFETY: the driver writes at most the length we name, NUL included.
    let result = unsafe { driver().get::<symbol::cuDeviceGetName>()(name.as_mut_ptr().cast(), 127, device) };
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
    result.ok().map(|()| String::from_utf8_lossy(&name[..end]).into_owned()).unwrap_or_default()
}

/// Alignment that the driver gives the rows of a pitched allocation, bytes.
pub(crate) fn pitch_alignment(device: CUdevice) -> usize {
    const FALLBACK: usize = 512;
    let asked = device_attribute(driver(), device, wm_abi::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
    asked
        .and_then(|value| usize::try_from(value).ok())
        .filter(|value| value.is_power_of_two())
        .unwrap_or(FALLBACK)
}

fn total_memory(device: CUdevice) -> u64 {
    let mut bytes = 0;
    // SAFETY: the out-pointer is to a live local.
    let result = unsafe { driver().get::<symbol::cuDeviceTotalMem_v2>()(&mut bytes, device) };
    result.ok().map_or(0, |()| bytes as u64)
}
