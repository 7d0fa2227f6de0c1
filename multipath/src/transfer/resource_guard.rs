//! Streams, events and memory of an object under construction. If the guard is dropped before the
//! object is complete, they are released.
//!
//! The owner releases a complete object by hand, or not at all: objects in a context of the program
//! end with the context, and once the process ends the driver gets no more calls.

use wm_abi::{CUcontext, CUdevice, CUevent, CUstream};

use crate::driver::{CopyDriver, DriverResult, WaitMode};

/// The parts made so far, in one context.
#[derive(Debug)]
pub(crate) struct ResourceGuard<'a, D: CopyDriver> {
    driver: &'a D,
    context: CUcontext,
    streams: Vec<CUstream>,
    events: Vec<CUevent>,
    /// Addresses and sizes.
    memory: Vec<(u64, usize)>,
}

impl<'a, D: CopyDriver> ResourceGuard<'a, D> {
    /// A guard without parts.
    pub(crate) fn new(driver: &'a D, context: CUcontext) -> Self {
        Self { driver, context, streams: Vec::new(), events: Vec::new(), memory: Vec::new() }
    }

    /// The context of the parts.
    pub(crate) fn context(&self) -> CUcontext {
        self.context
    }

    /// A non-blocking stream.
    ///
    /// # Errors
    /// Those of the driver.
    pub(crate) fn stream(&mut self) -> DriverResult<CUstream> {
        let stream = self.driver.stream(self.context)?;
        self.streams.push(stream);
        Ok(stream)
    }

    /// An event.
    ///
    /// # Errors
    /// Those of the driver.
    pub(crate) fn event(&mut self, wake: WaitMode) -> DriverResult<CUevent> {
        let event = self.driver.event(self.context, wake)?;
        self.events.push(event);
        Ok(event)
    }

    /// Several events.
    ///
    /// # Errors
    /// Those of the driver.
    pub(crate) fn events<const N: usize>(&mut self, wake: WaitMode) -> DriverResult<[CUevent; N]> {
        let mut events = [CUevent::NULL; N];
        for event in &mut events {
            *event = self.event(wake)?;
        }
        Ok(events)
    }

    /// Staging memory, as [`CopyDriver::staging`].
    ///
    /// # Errors
    /// Those of the driver.
    pub(crate) fn staging(&mut self, device: CUdevice, bytes: usize) -> DriverResult<u64> {
        let address = self.driver.staging(device, self.context, bytes)?;
        self.memory.push((address, bytes));
        Ok(address)
    }

    /// Pinned memory, as [`CopyDriver::buffer`].
    ///
    /// # Errors
    /// Those of the driver.
    pub(crate) fn buffer(&mut self, device: CUdevice, bytes: usize) -> DriverResult<u64> {
        let address = self.driver.buffer(device, bytes)?;
        self.memory.push((address, bytes));
        Ok(address)
    }

    /// The object is complete: its parts belong to the caller.
    pub(crate) fn keep(mut self) {
        self.streams.clear();
        self.events.clear();
        self.memory.clear();
    }
}

impl<D: CopyDriver> Drop for ResourceGuard<'_, D> {
    fn drop(&mut self) {
        let Self { driver, context, .. } = *self;
        for stream in self.streams.drain(..) {
            driver.retire(context, stream, &[]);
        }
        if !self.events.is_empty() {
            driver.retire(context, CUstream::NULL, &self.events);
        }
        for (address, bytes) in self.memory.drain(..) {
            driver.discard(address, bytes);
        }
    }
}
