//! A point in a program's stream: where a copy starts, or ends.
//!
//! It is recorded on the thread that makes the copy, before any other thread takes part: the handle of the per-thread default
//! stream names another stream on each thread. All lanes of a copy share one; none is recorded again while a lane remembers
//! it, so what a point says is always said of that copy.

use wm_abi::{CUcontext, CUevent, CUstream};

use crate::links::{Links, Result, Wake};
use crate::user::Home;

/// An event in a home.
#[derive(Debug)]
pub struct Point {
    home: Home,
    event: CUevent,
}

impl Point {
    /// A point that has not been recorded.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn new<L: Links>(links: &L, home: Home) -> Result<Self> {
        Ok(Self { home, event: links.event(home.context, Wake::Prompt)? })
    }

    /// The context that it belongs to, and ends with.
    pub fn home(&self) -> Home {
        self.home
    }

    /// Puts it behind all that is in a stream of its home now.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn record<L: Links>(&self, links: &L, stream: CUstream) -> Result<()> {
        links.record(self.home.context, self.event, stream)
    }

    /// Makes later work of a stream, of whatever context, wait for it.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn order<L: Links>(&self, links: &L, context: CUcontext, stream: CUstream) -> Result<()> {
        links.order(context, stream, self.event)
    }

    /// Blocks the host until the stream is past it.
    ///
    /// # Errors
    /// A sticky error of the context.
    pub fn wait<L: Links>(&self, links: &L) -> Result<()> {
        links.wait(self.home.context, self.event)
    }

    /// Is the stream past it? What cannot be said is taken for no.
    pub fn is_passed<L: Links>(&self, links: &L) -> bool {
        links.passed(self.home.context, self.event).unwrap_or(false)
    }
}
