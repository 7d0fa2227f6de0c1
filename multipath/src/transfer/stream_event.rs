//! An event in a program's stream: where a copy starts, or ends.
//!
//! It is recorded on the thread that makes the copy, before any other thread takes part: the handle
//! of the per-thread default stream names another stream on each thread. All lanes of a copy share
//! one; none is recorded again while a lane remembers it, so what an event says is always said of
//! that copy.

use wm_abi::{CUcontext, CUevent, CUstream};

use crate::driver::{CopyDriver, DriverResult, WaitMode};
use crate::vocabulary::stream::Home;

/// An event in a home.
#[derive(Debug)]
pub struct StreamEvent {
    home: Home,
    event: CUevent,
}

impl StreamEvent {
    /// An event that has not been recorded.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn new<D: CopyDriver>(driver: &D, home: Home) -> DriverResult<Self> {
        Ok(Self { home, event: driver.event(home.context, WaitMode::Prompt)? })
    }

    /// The context that it belongs to, and ends with.
    pub fn home(&self) -> Home {
        self.home
    }

    /// Puts it behind all that is in a stream of its home now.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn record<D: CopyDriver>(&self, driver: &D, stream: CUstream) -> DriverResult<()> {
        driver.record(self.home.context, self.event, stream)
    }

    /// Makes later work of a stream, of whatever context, wait for it.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn order<D: CopyDriver>(&self, driver: &D, context: CUcontext, stream: CUstream) -> DriverResult<()> {
        driver.order(context, stream, self.event)
    }

    /// Blocks the host until the stream is past it.
    ///
    /// # Errors
    /// A sticky error of the context.
    pub fn wait<D: CopyDriver>(&self, driver: &D) -> DriverResult<()> {
        driver.wait(self.home.context, self.event)
    }

    /// Is the stream past it? What cannot be said is taken for no.
    pub fn is_passed<D: CopyDriver>(&self, driver: &D) -> bool {
        driver.passed(self.home.context, self.event).unwrap_or(false)
    }
}
