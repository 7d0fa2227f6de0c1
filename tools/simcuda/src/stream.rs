//! Streams: lanes with a handle, a context, and perhaps a capture in progress.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use wm_abi::{CU_STREAM_NON_BLOCKING, CUresult, CUstream};

use crate::capture::{self, Capture};
use crate::context::Context;
use crate::entry::{Call, Outcome, require};
use crate::graph_form::Form;
use crate::lane::{Lane, Point, Work};
use crate::state::driver;

/// One stream.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Its handle; for default streams the value that names them.
    pub(crate) handle: usize,
    /// Unique in the process.
    pub(crate) id: u64,
    /// `CU_STREAM_*`.
    pub(crate) flags: u32,
    /// 0 to -5.
    pub(crate) priority: i32,
    /// Its context's [`Context::id`].
    pub(crate) context_id: u64,
    /// Its work.
    pub(crate) lane: Arc<Lane>,
    context: Weak<Context>,
    capture: Mutex<Option<Arc<Capture>>>,
}

impl Stream {
    fn new(context: &Arc<Context>, handle: usize, flags: u32, priority: i32, blocking: bool) -> Self {
        Self {
            handle,
            id: crate::memory::store::unique(),
            flags,
            priority,
            context_id: context.id,
            lane: context.lane(blocking),
            context: Arc::downgrade(context),
            capture: Mutex::default(),
        }
    }

    /// The legacy default stream of a context.
    pub(crate) fn legacy(context: &Arc<Context>) -> Self {
        Self::new(context, CUstream::LEGACY.0, 0, 0, false)
    }

    /// A stream that a program creates.
    pub(crate) fn create(context: &Arc<Context>, flags: u32, priority: i32) -> CUstream {
        let blocking = flags & CU_STREAM_NON_BLOCKING == 0;
        let make = |handle| Self::new(context, handle, flags, priority.clamp(-5, 0), blocking);
        CUstream(driver().streams.insert(make).0)
    }

    /// The stream's context.
    ///
    /// # Errors
    /// `CONTEXT_IS_DESTROYED` if it has ended.
    pub(crate) fn context(&self) -> Outcome<Arc<Context>> {
        self.context.upgrade().ok_or(CUresult::CONTEXT_IS_DESTROYED)
    }

    /// The capture that the stream is part of.
    pub(crate) fn capture(&self) -> Option<Arc<Capture>> {
        self.capture.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Enters or leaves a capture.
    pub(crate) fn set_capture(&self, capture: Option<Arc<Capture>>) {
        *self.capture.lock().unwrap_or_else(PoisonError::into_inner) = capture;
    }

    /// Is it a legacy default stream?
    pub(crate) fn is_legacy(&self) -> bool {
        self.handle == CUstream::LEGACY.0
    }

    /// Was it a stream of a green context that has ended?
    pub(crate) fn is_detached(&self) -> bool {
        self.context().is_ok_and(|context| context.is_detached())
    }

    /// Queues work, or makes it a node of the capture in progress (`None` then).
    ///
    /// # Errors
    /// The capture's, if it is invalid.
    pub(crate) fn submit(&self, form: impl Into<Form>, work: Work) -> Outcome<Option<Point>> {
        self.submit_after(Vec::new(), form.into(), work)
    }

    /// As [`Self::submit`], behind points of other streams as well.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub(crate) fn submit_after(&self, after: Vec<Point>, form: Form, work: Work) -> Outcome<Option<Point>> {
        match self.capture() {
            Some(capture) => capture.add(self.id, form, work).map(|_| None),
            None => self.push(after, work).map(Some),
        }
    }

    /// Queues work, capture or not.
    ///
    /// # Errors
    /// `STREAM_CAPTURE_IMPLICIT` on the legacy stream while a stream that it waits for is under
    /// capture.
    pub(crate) fn push(&self, after: Vec<Point>, work: Work) -> Outcome<Point> {
        if self.is_legacy() {
            capture::forbid_implicit(self.context_id)?;
        }
        self.context()?.push(&self.lane, after, work)
    }

    /// Queues an event, or a wait for one: an action in the default stream and in no other. In a
    /// blocking stream it does not wait for the default stream, as on an H200.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub(crate) fn mark(&self, after: Vec<Point>, work: Work) -> Outcome<Point> {
        if self.is_legacy() {
            return self.push(after, work);
        }
        self.context()?;
        self.lane.push(after, work)
    }

    /// A point behind all work that the stream's next work would wait for; `None` if there is none.
    ///
    /// # Errors
    /// `STREAM_CAPTURE_UNSUPPORTED` during a capture, which it ends.
    pub(crate) fn end(&self) -> Outcome<Option<Point>> {
        capture::forbid_in_stream(self)?;
        if self.is_legacy() {
            return self.push(Vec::new(), Arc::new(|| Ok(()))).map(Some);
        }
        Ok(self.lane.tail())
    }

    /// Blocks until the stream's work is done.
    ///
    /// # Errors
    /// The context's sticky error, and those of [`Self::end`].
    pub(crate) fn synchronize(&self) -> Outcome {
        self.end()?.iter().for_each(Point::wait);
        self.context()?.fault.check()
    }

    /// Is the stream's work done?
    ///
    /// # Errors
    /// As [`Self::synchronize`].
    pub(crate) fn is_idle(&self) -> Outcome<bool> {
        capture::forbid_in_stream(self)?;
        let context = self.context()?;
        context.fault.check()?;
        Ok(if self.is_legacy() { context.blocking_is_idle() } else { self.lane.is_idle() })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.lane.close();
    }
}

thread_local! {
    /// The calling thread's default streams, by context.
    static PER_THREAD: RefCell<HashMap<u64, Arc<Stream>>> = RefCell::default();
}

fn per_thread(context: &Arc<Context>) -> Arc<Stream> {
    let make = || Arc::new(Stream::new(context, CUstream::PER_THREAD.0, 0, 0, true));
    PER_THREAD.with_borrow_mut(|streams| Arc::clone(streams.entry(context.id).or_insert_with(make)))
}

impl Call {
    /// The stream of a handle, able to work.
    ///
    /// # Errors
    /// `INVALID_HANDLE` if there is none, `INVALID_CONTEXT` for a default stream without a context,
    /// and the sticky error of the stream's context.
    pub(crate) fn stream(self, handle: CUstream) -> Outcome<Arc<Stream>> {
        match if handle.is_null() { self.default_stream() } else { handle } {
            CUstream::LEGACY => Ok(self.context()?.legacy()),
            CUstream::PER_THREAD => {
                let context = self.context()?;
                // A thread has no default stream of its own in a green context.
                require(context.green_handle() == 0, CUresult::INVALID_HANDLE)?;
                Ok(per_thread(&context))
            }
            created => {
                let stream = driver().streams.get(created.0).ok_or(CUresult::INVALID_HANDLE)?;
                require(!stream.is_detached(), CUresult::CONTEXT_IS_DESTROYED)?;
                stream.context()?.fault.check()?;
                Ok(stream)
            }
        }
    }
}
