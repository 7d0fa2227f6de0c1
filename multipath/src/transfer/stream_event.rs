//! An event in a program's stream: the start of a copy, or its end.
//!
//! The thread that makes the copy records it, before any other thread takes part: the handle of the
//! per-thread default stream names another stream on each thread. All lanes of a copy share one
//! event; while a lane holds it, it is not recorded again, so its state is always that of this
//! copy.

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

    /// Records it behind all present work in a stream of its home.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn record<D: CopyDriver>(&self, driver: &D, stream: CUstream) -> DriverResult<()> {
        driver.record(self.home.context, self.event, stream)
    }

    /// Makes later work of a stream, of any context, wait for it.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn order<D: CopyDriver>(&self, driver: &D, context: CUcontext, stream: CUstream) -> DriverResult<()> {
        driver.order(context, stream, self.event)
    }

    /// Blocks the host until the stream has reached it.
    ///
    /// # Errors
    /// A sticky error of the context.
    pub fn wait<D: CopyDriver>(&self, driver: &D) -> DriverResult<()> {
        driver.wait(self.home.context, self.event)
    }

    /// Has the stream reached it? An error counts as no.
    pub fn is_passed<D: CopyDriver>(&self, driver: &D) -> bool {
        driver.passed(self.home.context, self.event).unwrap_or(false)
    }
}
