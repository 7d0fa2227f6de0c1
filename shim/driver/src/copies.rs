//! The library's own copies, and the check whether a device is idle: the mechanism of migration.
//!
//! Invariants: a stream holds only such copies, all of one direction, and waits for no other
//! stream, so its work ends soon; it belongs to the device's eldest context and ends with it; no
//! lock is held across a driver call.

use std::time::Duration;

use wm_abi::*;

use crate::api::Api;
use crate::api::scope::{Current, Relaxed};
use crate::device::Device;
use crate::gpu::{Event, Gpu, LinkWay, Result};

impl Device {
    /// Is all earlier work of the device over?
    pub(crate) fn has_settled(&self, limit: Duration) -> Result<bool> {
        // A call that ends a context waits for this one, or is known before the contexts are.
        let unaware = self.streams().unaware_call();
        let contexts = self.contexts_with_work().filter(|contexts| !self.has_green(contexts));
        let contexts = contexts.ok_or(CUresult::NOT_PERMITTED)?;
        // Without this function only an unbounded wait for a context is possible.
        if !self.driver().has::<symbol::cuCtxRecordEvent>() {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let events = self.record_in_contexts(contexts)?;
        drop(unaware);
        let done = self.wait_any(&[&events], limit).is_some();
        events.into_iter().for_each(|event| self.recycle(event));
        Ok(done)
    }

    /// Contexts of which the work may touch the device's memory. `None` where they are not all
    /// known.
    fn contexts_with_work(&self) -> Option<Vec<CUcontext>> {
        let known = self.known_contexts();
        let Some(list) = self.living_contexts else {
            return (!self.has_peers() && known.len() == 1).then_some(known);
        };
        // One that is not listed was made by a way that is not seen, and there may be more.
        list().filter(|all| !all.is_empty() && known.iter().all(|one| all.contains(one)))
    }

    /// Whether an event of a context covers its green contexts was not tested on a GPU.
    fn has_green(&self, contexts: &[CUcontext]) -> bool {
        contexts.iter().any(|context| !self.streams().greens_of(*context).is_empty())
    }

    /// Loads what fingerprints need. May take milliseconds.
    pub fn prepare_fingerprints(&self) {
        let held = self.hold_context();
        let context = held.context;
        let lives = self.contexts_with_work().is_some_and(|contexts| contexts.contains(&context));
        if !lives || self.refuse_capture().is_err() {
            return;
        }
        let _relaxed = Relaxed::enter(self.driver(), self.streams());
        if let Ok(_current) = Current::make(self.driver(), context) {
            (self.fingerprints.prepare)(context);
        }
    }

    /// Starts a copy in the device's own stream for that direction.
    pub(crate) fn start_copy(&self, way: LinkWay, to: u64, from: u64, bytes: usize) -> Result<Event> {
        let context = self.context();
        let _relaxed = Relaxed::enter(self.driver(), self.streams());
        let _current = Current::make(self.driver(), context)?;
        let stream = self.stream_for_copies(way, context)?;
        // SAFETY: the caller guarantees both ranges until the event is done.
        unsafe { self.measured().memcpy_dtod_async(to, from, bytes, stream) }?;
        self.record_unasked(context, stream).inspect_err(|_| {
            // An error promises that no copy is in flight. The stream's work ends by itself, or its
            // context has failed.
            let _ = self.measured().stream_synchronize(stream);
        })
    }

    /// The bytes of a range, read in the stream for copies from the device.
    pub(crate) fn read(&self, from: u64, bytes: usize) -> Result<Vec<u8>> {
        let context = self.context();
        let _relaxed = Relaxed::enter(self.driver(), self.streams());
        let _current = Current::make(self.driver(), context)?;
        let stream = self.stream_for_copies(LinkWay::Out, context)?;
        let mut read = Vec::new();
        read.try_reserve_exact(bytes).map_err(|_| CUresult::OUT_OF_MEMORY)?;
        read.resize(bytes, 0_u8);
        // SAFETY: the caller guarantees the range; the bytes stay until the stream is empty.
        let copied =
            unsafe { self.measured().memcpy_dtoh_async(read.as_mut_ptr().cast(), from, bytes, stream) };
        self.measured().stream_synchronize(stream)?;
        copied.map(|()| read)
    }

    pub(crate) fn stream_for_copies(&self, way: LinkWay, context: CUcontext) -> Result<CUstream> {
        let streams = self.copy_streams().of(way);
        if let Some(stream) = streams.of(context) {
            return Ok(stream);
        }
        let made = self.measured().stream_create(CU_STREAM_NON_BLOCKING)?;
        let (stream, surplus) = streams.set(context, made);
        // It is empty: its destruction waits for no work.
        surplus.map_or(Ok(()), |surplus| self.measured().stream_destroy(surplus))?;
        Ok(stream)
    }
}
