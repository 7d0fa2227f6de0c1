//! What a driver call of ours needs for its duration: a context, and a capture mode that harms nobody.
//!
//! Both are states of the calling thread, which is the host program's. Each guard puts back what it found when it is dropped, so
//! a call of ours leaves no trace on any way out.

use wm_abi::{CU_STREAM_CAPTURE_MODE_RELAXED, CUcontext, CUresult, symbol};

use crate::device::current_context;
use crate::gpu::Result;
use crate::streams::Streams;
use crate::table::Table;

/// Makes a context current for a scope, and puts the old one back.
pub(crate) struct Current(Option<&'static Table>);

impl Current {
    pub(crate) fn make(driver: &'static Table, context: CUcontext) -> Result<Self> {
        if context.is_null() {
            return Err(CUresult::INVALID_CONTEXT);
        }
        if current_context(driver) == context {
            return Ok(Self(None));
        }
        // SAFETY: no pointers but the handle, which the driver checks.
        unsafe { driver.get::<symbol::cuCtxPushCurrent_v2>()(context) }.ok()?;
        Ok(Self(Some(driver)))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(driver) = self.0 {
            let mut popped = CUcontext::NULL;
            // SAFETY: pops what `make` pushed. There is nobody to report a failure to.
            let _ = unsafe { driver.get::<symbol::cuCtxPopCurrent_v2>()(&mut popped) };
        }
    }
}

/// Relaxes the thread's capture mode for a scope: in the default mode our calls would end another thread's capture.
pub(crate) struct Relaxed(Option<(&'static Table, u32)>);

impl Relaxed {
    pub(crate) fn enter(driver: &'static Table, streams: &Streams) -> Self {
        if !streams.capturing() {
            return Self(None);
        }
        exchange(driver, CU_STREAM_CAPTURE_MODE_RELAXED)
            .map_or(Self(None), |before| Self(Some((driver, before))))
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        if let Some((driver, before)) = self.0 {
            exchange(driver, before);
        }
    }
}

fn exchange(driver: &Table, mode: u32) -> Option<u32> {
    let mut mode = mode;
    // SAFETY: the driver swaps the value behind the pointer, a live local.
    let result = unsafe { driver.get::<symbol::cuThreadExchangeStreamCaptureMode>()(&mut mode) };
    result.ok().ok().map(|()| mode)
}
