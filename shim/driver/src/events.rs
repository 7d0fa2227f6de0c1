//! Events of ours, by the context that each was made in.
//!
//! An event goes with its context. While a context is being ended, nothing is asked of its events
//! and nothing is made to wait for them, for the driver may be taking them down; whether their work
//! is over is known once it has said that the context is gone. Then they count as done.

use std::collections::HashMap;

use wm_abi::{CUcontext, CUevent};

use crate::gpu::Event;

/// Every event of one device.
#[derive(Debug, Default)]
pub(crate) struct Events {
    idle: HashMap<CUcontext, Vec<CUevent>>,
    live: HashMap<CUevent, CUcontext>,
    ending: Vec<CUcontext>,
}

/// What may be done with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The driver can be asked.
    Live,
    /// Its context is being ended: nothing is known.
    Ending,
    /// Its context is gone, and its work over.
    Done,
}

/// The driver's handle of an event.
pub(crate) fn raw(event: &Event) -> CUevent {
    CUevent(event.0 as usize)
}

impl Events {
    /// An event of the context that is not in use.
    pub(crate) fn take_idle(&mut self, context: CUcontext) -> Option<CUevent> {
        self.idle.get_mut(&context).and_then(Vec::pop)
    }

    /// Takes in an event that was just made.
    pub(crate) fn enter(&mut self, event: CUevent, context: CUcontext) {
        self.live.insert(event, context);
    }

    pub(crate) fn standing(&self, event: &Event) -> Standing {
        match self.live.get(&raw(event)) {
            None => Standing::Done,
            Some(context) if self.ending.contains(context) => Standing::Ending,
            Some(_) => Standing::Live,
        }
    }

    /// An event that is not in use any more.
    pub(crate) fn put_back(&mut self, event: &Event) {
        if let Some(context) = self.live.get(&raw(event)) {
            self.idle.entry(*context).or_default().push(raw(event));
        }
    }

    /// The program wants to end a context.
    pub(crate) fn suspend(&mut self, context: CUcontext) {
        self.ending.push(context);
    }

    /// The driver refused: the context goes on.
    pub(crate) fn resume(&mut self, context: CUcontext) {
        if let Some(position) = self.ending.iter().position(|ending| *ending == context) {
            self.ending.swap_remove(position);
        }
    }

    /// The context is gone.
    pub(crate) fn forget(&mut self, context: CUcontext) {
        self.resume(context);
        self.idle.remove(&context);
        self.live.retain(|_, owner| *owner != context);
    }
}
