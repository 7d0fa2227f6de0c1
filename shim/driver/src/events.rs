//! Events of ours, by the context of each.
//!
//! An event ends with its context. While a context is being destroyed, its events are neither
//! queried nor waited for, because the driver may be destroying them. Once the driver reports that
//! the context is gone, they count as done.

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

/// The state of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The driver may be called with it.
    Live,
    /// Its context is being destroyed: its state is unknown.
    Ending,
    /// Its context is gone, and its work is over.
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

    /// Adds an event that was just created.
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

    /// Returns an event that is not in use any more.
    pub(crate) fn put_back(&mut self, event: &Event) {
        if let Some(context) = self.live.get(&raw(event)) {
            self.idle.entry(*context).or_default().push(raw(event));
        }
    }

    /// The program is about to destroy a context.
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
