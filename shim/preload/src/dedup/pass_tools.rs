//! The tools of the passes in one context: our kernels, and the schedule.

use std::time::Instant;

use wm_abi::{CUcontext, CUresult};
use wm_dedup::policy::schedule::Schedule;
use wm_driver::{Api, Device};
use wm_memory::Manager;

use super::kernels::ChunkKernels;
use crate::process::driver;

/// See above.
pub(super) struct PassTools {
    pub(super) kernels: ChunkKernels,
    pub(super) schedule: Schedule,
    /// The UUID of the device.
    pub(super) device: [u8; 16],
    /// The device is a part of a GPU.
    pub(super) is_partial: bool,
}

impl PassTools {
    /// Loads the kernels into a context, the current one.
    pub(super) fn load(manager: &Manager<Device>, context: CUcontext) -> Result<Self, CUresult> {
        let ordinal = manager.gpu().ordinal();
        let device = driver().device_uuid(ordinal)?.bytes;
        Ok(Self {
            is_partial: driver().gpu_uuid(ordinal)?.bytes != device,
            device,
            kernels: ChunkKernels::load(context)?,
            schedule: Schedule::new(Instant::now()),
        })
    }
}
