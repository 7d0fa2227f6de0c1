//! The thread states for the duration of a driver call of ours: a context, and a capture mode that
//! invalidates no capture.
//!
//! Both belong to the host program's thread. Each guard restores the earlier state when it is
//! dropped, so a call of ours leaves no trace on any way out.

use wm_abi::{CU_STREAM_CAPTURE_MODE_RELAXED, CUcontext, CUresult};

use super::Api;
use crate::streams::{Streams, UnawareCall};
use crate::table::Table;

/// Makes a context current for a scope, and restores the old one after it.
#[derive(Debug)]
#[must_use]
pub struct Current<'a>(Option<&'a Table>);

impl<'a> Current<'a> {
    /// Pushes the context unless it is current.
    ///
    /// # Errors
    /// The driver's; `INVALID_CONTEXT` for null.
    pub fn make(driver: &'a Table, context: CUcontext) -> Result<Self, CUresult> {
        if context.is_null() {
            return Err(CUresult::INVALID_CONTEXT);
        }
        if driver.ctx_current() == Ok(context) {
            return Ok(Self(None));
        }
        driver.ctx_push_current(context)?;
        Ok(Self(Some(driver)))
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if let Some(driver) = self.0 {
            // Pops the context that `make` pushed. A failure cannot be reported from a destructor.
            let _ = driver.ctx_pop_current();
        }
    }
}

/// Relaxes the thread's capture mode for a scope: in the default mode our calls would end another
/// thread's capture.
#[derive(Debug)]
#[must_use]
pub struct Relaxed<'a>(RelaxedScope<'a>);

#[derive(Debug)]
enum RelaxedScope<'a> {
    /// The mode is unchanged, or could not be changed.
    Unchanged,
    /// The old mode.
    Mode(&'a Table, u32),
    /// No capture has begun in this process, and none begins before the scope ends.
    Unaware { _call: UnawareCall<'a> },
}

impl<'a> Relaxed<'a> {
    /// Relaxes it in a process that has captured. Also without a present capture, because one may
    /// begin before the call is made. For calls that do not wait.
    pub fn enter(driver: &'a Table, streams: &'a Streams) -> Self {
        if !streams.has_captured() {
            let call = streams.unaware_call();
            if !streams.has_captured() {
                return Self(RelaxedScope::Unaware { _call: call });
            }
        }
        Self::always(driver)
    }

    /// Relaxes it while any stream is under capture: for calls that no capture is known to forbid,
    /// and that may take long.
    pub fn beside_captures(driver: &'a Table, streams: &Streams) -> Self {
        if streams.capturing() { Self::always(driver) } else { Self(RelaxedScope::Unchanged) }
    }

    /// Relaxes it in any case: for a capture that begins during the scope.
    pub fn always(driver: &'a Table) -> Self {
        match driver.exchange_capture_mode(CU_STREAM_CAPTURE_MODE_RELAXED) {
            Ok(before) => Self(RelaxedScope::Mode(driver, before)),
            Err(_) => Self(RelaxedScope::Unchanged),
        }
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if let RelaxedScope::Mode(driver, before) = self.0 {
            let _ = driver.exchange_capture_mode(before);
        }
    }
}
