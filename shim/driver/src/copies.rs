//! Copies that the library makes for itself, and the look whether a device has nothing left to do:
//! what moving memory needs.
//!
//! Invariants: a stream has nothing in it but such copies, all of one way, and waits for no other,
//! so what is in it ends soon; it belongs to the device's eldest context and goes with it; no lock
//! is held across a driver call.

use std::time::Duration;

use wm_abi::*;

use crate::api::Api;
use crate::api::scope::{Current, Relaxed};
use crate::device::Device;
use crate::gpu::{Event, Gpu, LinkWay, Result};

impl Device {
    /// Is all work of the device over that was submitted before? `minds_graphs`: not known where a
    /// graph may have been captured.
    pub(crate) fn has_settled(&self, limit: Duration, minds_graphs: bool) -> Result<bool> {
        if self.is_used_in_other_ways() || minds_graphs && self.streams().has_captured() {
            return Err(CUresult::NOT_PERMITTED);
        }
        // Without this function a context can only be waited for, and that has no bound.
        if !self.driver().has::<symbol::cuCtxRecordEvent>() {
            return Err(CUresult::NOT_SUPPORTED);
        }
        let events = self.record_contexts()?;
        let done = self.wait_any(&[&events], limit).is_some();
        events.into_iter().for_each(|event| self.recycle(event));
        Ok(done)
    }

    /// May there be work, now or later, that an event of the device's one context tells nothing of?
    /// A peer's work is in contexts that are not looked at here; what an event of a context says of
    /// its green ones was not asked of a GPU.
    fn is_used_in_other_ways(&self) -> bool {
        let contexts = self.known_contexts();
        let green = |context: &CUcontext| !self.streams().greens_of(*context).is_empty();
        self.has_peers() || contexts.len() != 1 || contexts.iter().any(green)
    }

    /// Starts a copy in the device's own stream for that way.
    pub(crate) fn start_copy(&self, way: LinkWay, to: u64, from: u64, bytes: usize) -> Result<Event> {
        let context = self.context();
        let _relaxed = Relaxed::enter(self.driver(), self.streams());
        let _current = Current::make(self.driver(), context)?;
        let stream = self.stream_for_copies(way, context)?;
        // SAFETY: the caller answers for both ranges until the event is done.
        unsafe { self.measured().memcpy_dtod_async(to, from, bytes, stream) }?;
        self.record_unasked(context, stream).inspect_err(|_| {
            // An error says that nothing is being copied. What is in the stream ends by itself, or
            // its context has failed.
            let _ = self.measured().stream_synchronize(stream);
        })
    }

    fn stream_for_copies(&self, way: LinkWay, context: CUcontext) -> Result<CUstream> {
        let streams = self.copy_streams().of(way);
        if let Some(stream) = streams.of(context) {
            return Ok(stream);
        }
        let made = self.measured().stream_create(CU_STREAM_NON_BLOCKING)?;
        let (stream, surplus) = streams.set(context, made);
        // It is empty: its end waits for nothing.
        surplus.map_or(Ok(()), |surplus| self.measured().stream_destroy(surplus))?;
        Ok(stream)
    }
}
