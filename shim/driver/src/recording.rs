//! A device's events with the driver: created, recorded, queried, and made a dependency of a
//! stream.
//!
//! Invariants: an event is recorded only in the stream or context that it stands for; no event is
//! recorded in a stream under capture, where it would become part of the graph; an event whose
//! recording failed is not in use; while a context is being destroyed, the driver is not called
//! with its events ([`crate::events`]).

use wm_abi::symbol;
use wm_abi::*;

use crate::api::Api;
use crate::api::scope::{Current, Relaxed};
use crate::device::Device;
use crate::events::{Standing, raw};
use crate::gpu::{Event, Gpu, Result, StreamId};

impl Device {
    /// Blocks the calling thread until the GPU has passed an event.
    ///
    /// # Errors
    /// The driver's.
    pub fn wait(&self, event: &Event) -> Result<()> {
        match self.standing(event) {
            Standing::Live => {}
            Standing::Ending => return Err(CUresult::CONTEXT_IS_DESTROYED),
            Standing::Done => return Ok(()),
        }
        let _relaxed = Relaxed::always(self.driver());
        self.measured().event_synchronize(raw(event))
    }

    /// An event behind the present work in a stream.
    pub(crate) fn record_in(&self, stream: StreamId) -> Result<Event> {
        let key = self.streams().key(stream).ok_or(CUresult::INVALID_HANDLE)?;
        if !key.is_reachable() {
            return Err(CUresult::STREAM_CAPTURE_UNSUPPORTED);
        }
        self.refuse_captured(key.stream)?;
        self.record_unasked(key.context, key.stream)
    }

    /// The same for a caller that knows that an event can be recorded in the stream.
    pub(crate) fn record_unasked(&self, context: CUcontext, stream: CUstream) -> Result<Event> {
        let event = self.event(context)?;
        let recorded = self.record_here(context, event, stream);
        self.finish(event, recorded)
    }

    /// Events behind the present work in every context that has allocated.
    pub(crate) fn record_contexts(&self) -> Result<Vec<Event>> {
        self.record_in_contexts(self.known_contexts())
    }

    /// Events behind the present work in contexts: one each, or none if one fails.
    pub(crate) fn record_in_contexts(&self, contexts: Vec<CUcontext>) -> Result<Vec<Event>> {
        // An event of a context breaks each capture in it, in any mode.
        let _call = self.streams().unaware_call();
        self.refuse_capture()?;
        let mut events = Vec::with_capacity(contexts.len());
        for context in contexts {
            match self.record_context(context) {
                Ok(event) => events.push(event),
                Err(code) => {
                    events.into_iter().for_each(|event| self.recycle(event));
                    return Err(code);
                }
            }
        }
        Ok(events)
    }

    /// Has the GPU passed an event? Never waits.
    pub(crate) fn is_passed(&self, event: &Event) -> Result<bool> {
        match self.standing(event) {
            Standing::Live => {}
            Standing::Ending => return Ok(false),
            Standing::Done => return Ok(true),
        }
        let _relaxed = Relaxed::enter(self.driver(), self.streams());
        self.measured().event_query(raw(event))
    }

    /// Makes later work in a stream wait, on the GPU, for an event.
    pub(crate) fn hold_back(&self, stream: StreamId, event: &Event) -> Result<()> {
        match self.standing(event) {
            Standing::Live => {}
            Standing::Ending => return Err(CUresult::CONTEXT_IS_DESTROYED),
            Standing::Done => return Ok(()),
        }
        let key = self.streams().key(stream).ok_or(CUresult::INVALID_HANDLE)?;
        self.refuse_captured(key.stream)?;
        let _current = Current::make(self.driver(), key.context)?;
        self.measured().stream_wait_event(key.stream, raw(event))
    }

    /// An event of the context, to be recorded.
    fn event(&self, context: CUcontext) -> Result<CUevent> {
        // A green context may be destroyed while it has work; the events of that work must outlive
        // it.
        let context = self.streams().home(context);
        if let Some(event) = self.lock_events().take_idle(context) {
            return Ok(event);
        }
        let _current = Current::make(self.driver(), context)?;
        let event = self.measured().event_create(CU_EVENT_DISABLE_TIMING)?;
        self.lock_events().enter(event, context);
        Ok(event)
    }

    /// An error while any stream is under capture: the next call would end the capture.
    pub(crate) fn refuse_capture(&self) -> Result<()> {
        if self.streams().capturing() { Err(CUresult::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// An error if a record in this stream could touch a capture.
    pub(crate) fn refuse_captured(&self, stream: CUstream) -> Result<()> {
        if !self.streams().capturing() {
            return Ok(());
        }
        if stream == CUstream::LEGACY {
            return Err(CUresult::STREAM_CAPTURE_UNSUPPORTED);
        }
        match self.measured().stream_is_capturing(stream)? {
            CU_STREAM_CAPTURE_STATUS_NONE => Ok(()),
            _ => Err(CUresult::STREAM_CAPTURE_UNSUPPORTED),
        }
    }

    fn standing(&self, event: &Event) -> Standing {
        self.lock_events().standing(event)
    }

    /// An event behind all work of a context, in known and unknown streams.
    fn record_context(&self, context: CUcontext) -> Result<Event> {
        let event = self.event(context)?;
        let recorded = if self.driver().has::<symbol::cuCtxRecordEvent>() {
            self.measured().ctx_record_event(context, event)
        } else {
            self.drain(context).and_then(|()| self.record_here(context, event, CUstream::LEGACY))
        };
        self.finish(event, recorded)
    }

    /// Drivers before 12.5 cannot record a context. A wait for it is slower and has the same
    /// effect.
    pub(crate) fn drain(&self, context: CUcontext) -> Result<()> {
        let _current = Current::make(self.driver(), context)?;
        self.measured().ctx_synchronize()
    }

    /// The handle of a default stream means that of the current context.
    fn record_here(&self, context: CUcontext, event: CUevent, stream: CUstream) -> Result<()> {
        let named = stream != CUstream::LEGACY && stream != CUstream::PER_THREAD;
        let _current = (!named).then(|| Current::make(self.driver(), context)).transpose()?;
        self.measured().event_record(event, stream)
    }

    fn finish(&self, event: CUevent, recorded: Result<()>) -> Result<Event> {
        let event = Event(event.0 as u64);
        match recorded {
            Ok(()) => Ok(event),
            Err(code) => {
                self.recycle(event);
                Err(code)
            }
        }
    }
}
