//! Streams, events and memory of something that is being made. Dropped before the whole is there, they are given back.
//!
//! What is whole is given back by hand, or not at all: what is in a context of the program ends with the context, and once the
//! process ends the driver is left alone.

use wm_abi::{CUcontext, CUdevice, CUevent, CUstream};

use crate::links::{Links, Result, Wake};

/// What there is so far, in one context.
#[derive(Debug)]
pub struct Making<'a, L: Links> {
    links: &'a L,
    context: CUcontext,
    streams: Vec<CUstream>,
    events: Vec<CUevent>,
    /// Addresses and sizes.
    memory: Vec<(u64, usize)>,
}

impl<'a, L: Links> Making<'a, L> {
    /// Nothing yet.
    pub fn new(links: &'a L, context: CUcontext) -> Self {
        Self { links, context, streams: Vec::new(), events: Vec::new(), memory: Vec::new() }
    }

    /// Where it is made.
    pub fn context(&self) -> CUcontext {
        self.context
    }

    /// A non-blocking stream.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn stream(&mut self) -> Result<CUstream> {
        let stream = self.links.stream(self.context)?;
        self.streams.push(stream);
        Ok(stream)
    }

    /// An event.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn event(&mut self, wake: Wake) -> Result<CUevent> {
        let event = self.links.event(self.context, wake)?;
        self.events.push(event);
        Ok(event)
    }

    /// Several events.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn events<const N: usize>(&mut self, wake: Wake) -> Result<[CUevent; N]> {
        let mut events = [CUevent::NULL; N];
        for event in &mut events {
            *event = self.event(wake)?;
        }
        Ok(events)
    }

    /// Staging memory, as [`Links::staging`].
    ///
    /// # Errors
    /// Those of the driver.
    pub fn staging(&mut self, device: CUdevice, bytes: usize) -> Result<u64> {
        let address = self.links.staging(device, self.context, bytes)?;
        self.memory.push((address, bytes));
        Ok(address)
    }

    /// Pinned memory, as [`Links::buffer`].
    ///
    /// # Errors
    /// Those of the driver.
    pub fn buffer(&mut self, device: CUdevice, bytes: usize) -> Result<u64> {
        let address = self.links.buffer(device, bytes)?;
        self.memory.push((address, bytes));
        Ok(address)
    }

    /// All is there: it belongs to the caller.
    pub fn keep(mut self) {
        self.streams.clear();
        self.events.clear();
        self.memory.clear();
    }
}

impl<L: Links> Drop for Making<'_, L> {
    fn drop(&mut self) {
        let Self { links, context, .. } = *self;
        for stream in self.streams.drain(..) {
            links.retire(context, stream, &[]);
        }
        if !self.events.is_empty() {
            links.retire(context, CUstream::NULL, &self.events);
        }
        for (address, bytes) in self.memory.drain(..) {
            links.discard(address, bytes);
        }
    }
}
