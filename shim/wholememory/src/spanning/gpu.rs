//! The GPU of a rank, and the context of its work.

use wm_abi::*;
use wm_driver::api::Named;
use wm_driver::api::scope::{Current, Relaxed};

use crate::error::{Error, Result};

/// Where a rank's GPU work is done.
#[derive(Debug, Clone, Copy)]
pub struct RankGpu {
    /// The driver.
    pub driver: Named<'static>,
    /// The GPU.
    pub device: CUdevice,
    /// The context.
    pub context: CUcontext,
}

impl RankGpu {
    /// Makes the context current, and lets calls be made while streams are captured.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn enter(&self) -> Result<(Current<'static>, Relaxed<'static>)> {
        let current = Current::make(self.driver.0, self.context);
        let current = current
            .map_err(|code| Error::Cuda(format!("the communicator's context is not usable: {code}")))?;
        Ok((current, Relaxed::always(self.driver.0)))
    }
}
