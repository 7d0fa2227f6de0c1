//! The tools of the passes in one context: our kernels, and the schedule.

use std::time::Instant;

use thiserror::Error;
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
}

/// Why there are no tools. Sharing is over then.
#[derive(Debug, Error)]
pub(super) enum LoadError {
    /// The UUID of the device is not that of its GPU.
    #[error("the device is a part of a GPU (MIG)")]
    PartialGpu,
    /// By the driver.
    #[error("the library's kernels could not be loaded: {0}")]
    Driver(#[from] CUresult),
}

impl PassTools {
    /// Loads the kernels into a context, the current one.
    pub(super) fn load(manager: &Manager<Device>, context: CUcontext) -> Result<Self, LoadError> {
        let ordinal = manager.gpu().ordinal();
        let device = driver().device_uuid(ordinal)?.bytes;
        if driver().gpu_uuid(ordinal)?.bytes != device {
            return Err(LoadError::PartialGpu);
        }
        Ok(Self { device, kernels: ChunkKernels::load(context)?, schedule: Schedule::new(Instant::now()) })
    }
}
