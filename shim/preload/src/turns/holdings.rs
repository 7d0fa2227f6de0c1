//! The process's memory on each GPU, as the broker is told.

use wm_abi::CUdevice;
use wm_dedup::turns::message::{GPUS, GpuId, GpuUse};
use wm_driver::{Api, Device};
use wm_memory::Manager;

use super::book::DeviceBytes;
use crate::pauses::Pauses;
use crate::process::driver;
use crate::registry;

/// The identity of a device, which all processes agree on.
fn identity(device: CUdevice) -> Option<GpuId> {
    driver().device_uuid(device).ok().map(|uuid| uuid.bytes)
}

/// The device of an identity, if this process uses it.
pub(super) fn device_of(gpu: &GpuId) -> Option<CUdevice> {
    let mut devices = registry::all().map(|manager| manager.gpu().ordinal());
    devices.find(|device| identity(*device) == Some(*gpu))
}

/// All of them. `requested`: bytes of devices that threads wait for. `given`: what has left.
pub(super) fn all(pauses: &Pauses, requested: &DeviceBytes, given: &DeviceBytes) -> Vec<GpuUse> {
    let of_device = |manager| of_device(manager, pauses, requested, given);
    registry::all().take(GPUS).filter_map(of_device).collect()
}

fn of_device(
    manager: &Manager<Device>,
    pauses: &Pauses,
    requested: &DeviceBytes,
    given: &DeviceBytes,
) -> Option<GpuUse> {
    let device = manager.gpu().ordinal();
    let usage = manager.usage();
    let idle = usage.idle.device + usage.pieces.idle.device;
    let movable: u64 = manager.large_blocks(0).iter().map(|block| block.tiers.device).sum();
    Some(GpuUse {
        gpu: identity(device)?,
        present: idle + movable,
        missing: pauses.away_bytes(device).saturating_add(requested.of(device)),
        free: manager.device_room(),
        given: given.of(device),
    })
}
