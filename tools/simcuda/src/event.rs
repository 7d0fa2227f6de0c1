//! Events: points in streams, with the time at which the streams reached them.
//!
//! Invariant: a new record replaces the old one as a whole; a wait for the older record still waits
//! for that one.

use std::ffi::c_uint;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use wm_abi::{
    CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING, CU_EVENT_INTERPROCESS, CUevent, CUresult, CUstream,
};

use crate::capture::{self, Capture};
use crate::context::Context;
use crate::entry::{Outcome, exports, put, require};
use crate::lane::Point;
use crate::memory::Place;
use crate::pool;
use crate::settings::settings;
use crate::state::driver;
use crate::stream::Stream;

/// One event.
#[derive(Debug)]
pub(crate) struct Event {
    /// `CU_EVENT_*`.
    flags: u32,
    /// Ordinal of its context's device.
    device: usize,
    /// Its context's [`Context::id`].
    pub(crate) context_id: u64,
    record: Mutex<Record>,
}

/// The last record.
#[derive(Debug, Clone, Default)]
enum Record {
    /// None: the event counts as reached.
    #[default]
    Nothing,
    /// Points of streams, and the time when the last of them was reached.
    Points(Vec<Point>, Arc<OnceLock<Instant>>),
    /// Nodes of a capture.
    Nodes(Arc<Capture>, Vec<usize>),
}

/// The event of a handle.
///
/// # Errors
/// `INVALID_HANDLE` if there is none.
fn of(handle: CUevent) -> Outcome<Arc<Event>> {
    driver().events.get(handle.0).ok_or(CUresult::INVALID_HANDLE)
}

impl Event {
    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Points to wait for on the host.
    fn points(&self) -> Outcome<Vec<Point>> {
        match &*self.record() {
            Record::Nothing => Ok(Vec::new()),
            Record::Points(points, _) => Ok(points.clone()),
            Record::Nodes(..) => Err(CUresult::CAPTURED_EVENT),
        }
    }

    fn is_passed(&self) -> Outcome<bool> {
        Ok(self.points()?.iter().all(Point::is_done))
    }

    fn fault(&self) -> Outcome {
        let contexts = driver().contexts.all();
        contexts
            .iter()
            .find(|context| context.id == self.context_id)
            .map_or(Ok(()), |context| context.fault.check())
    }

    /// The time at which it was reached.
    fn time(&self) -> Outcome<Instant> {
        require(self.flags & CU_EVENT_DISABLE_TIMING == 0, CUresult::INVALID_HANDLE)?;
        require(self.is_passed()?, CUresult::NOT_READY)?;
        match &*self.record() {
            Record::Points(_, stamp) => stamp.get().copied().ok_or(CUresult::NOT_READY),
            _ => Err(CUresult::INVALID_HANDLE),
        }
    }
}

/// Records an event behind all work now in a stream.
///
/// # Errors
/// `INVALID_HANDLE` for an unknown event, or one of another device.
pub(crate) fn record(stream: &Stream, handle: CUevent) -> Outcome {
    let event = of(handle)?;
    if let Some(capture) = stream.capture() {
        let nodes = capture.frontier(stream.id)?;
        *event.record() = Record::Nodes(capture, nodes);
        return Ok(());
    }
    require(stream.context()?.device == event.device, CUresult::INVALID_HANDLE)?;
    let stamp = Arc::new(OnceLock::new());
    let mut record = event.record();
    let point = stream.mark(Vec::new(), stamping(&stamp))?;
    *record = Record::Points(vec![point], stamp);
    Ok(())
}

fn stamping(stamp: &Arc<OnceLock<Instant>>) -> crate::lane::Work {
    let stamp = Arc::clone(stamp);
    Arc::new(move || {
        let _ = stamp.set(Instant::now());
        Ok(())
    })
}

/// Records an event behind all work now in a context.
///
/// # Errors
/// `INVALID_HANDLE` for an unknown event.
pub(crate) fn record_all(context: &Context, handle: CUevent) -> Outcome {
    let event = of(handle)?;
    let tails = context.tails();
    // A thread of its own would pass the event some milliseconds later on a loaded machine, where
    // an idle GPU takes microseconds.
    let is_passed = settings().seed.is_none() && tails.iter().all(Point::is_passed);
    let record = if is_passed { passed(tails) } else { behind(context, tails)? };
    *event.record() = record;
    Ok(())
}

fn passed(points: Vec<Point>) -> Record {
    Record::Points(points, Arc::new(OnceLock::from(Instant::now())))
}

fn behind(context: &Context, tails: Vec<Point>) -> Outcome<Record> {
    let stamp = Arc::new(OnceLock::new());
    let lane = context.lane(false);
    let point = lane.push(tails, stamping(&stamp))?;
    lane.close();
    Ok(Record::Points(vec![point], stamp))
}

/// Makes all later work of a stream wait for an event.
///
/// # Errors
/// `INVALID_HANDLE` for an unknown event, and the errors of a capture that takes part.
pub(crate) fn wait(stream: &Arc<Stream>, handle: CUevent) -> Outcome {
    let record = of(handle)?.record().clone();
    match (record, stream.capture()) {
        (Record::Nodes(capture, nodes), own) => capture.join(stream, own.as_ref(), &nodes),
        (_, Some(capture)) => {
            capture.invalidate();
            Err(CUresult::STREAM_CAPTURE_ISOLATION)
        }
        (Record::Nothing, None) => Ok(()),
        (Record::Points(points, _), None) => stream.mark(points, Arc::new(|| Ok(()))).map(drop),
    }
}

/// Makes all later work of every stream of a context wait for an event.
///
/// # Errors
/// As [`wait`].
pub(crate) fn wait_all(context: &Arc<Context>, handle: CUevent) -> Outcome {
    of(handle)?;
    let streams = driver().streams.all();
    streams
        .iter()
        .filter(|stream| stream.context_id == context.id)
        .try_for_each(|stream| wait(stream, handle))?;
    wait(&context.legacy(), handle)
}

const FLAGS: c_uint = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
/// `CU_EVENT_RECORD_EXTERNAL`: a node of its own in a capture.
const EXTERNAL: c_uint = 1;

fn elapsed(start: CUevent, end: CUevent) -> Outcome<f32> {
    let (start, end) = (of(start)?.time()?, of(end)?.time()?);
    let forward = end.saturating_duration_since(start).as_secs_f64();
    let backward = start.saturating_duration_since(end).as_secs_f64();
    Ok(((forward - backward) * 1e3) as f32)
}

fn destroy(handle: CUevent) -> Outcome {
    driver().events.remove(handle.0).map(drop).ok_or(CUresult::INVALID_HANDLE)
}

exports! {
    fn cuEventCreate(phEvent: *mut CUevent, Flags: c_uint) |call| {
        let context = call.context()?;
        require(!phEvent.is_null() && Flags & !FLAGS == 0, CUresult::INVALID_VALUE)?;
        // An event for other processes stores no time.
        let bad = Flags & CU_EVENT_INTERPROCESS != 0 && Flags & CU_EVENT_DISABLE_TIMING == 0;
        require(!bad, CUresult::INVALID_VALUE)?;
        let make = |_| Event { flags: Flags, device: context.device, context_id: context.id, record: Mutex::default() };
        put(phEvent, CUevent(driver().events.insert(make).0))
    }

    fn cuEventDestroy(hEvent: CUevent) |call| {
        destroy(hEvent)
    }

    fn cuEventDestroy_v2(hEvent: CUevent) |call| {
        destroy(hEvent)
    }

    fn cuEventRecord + cuEventRecord_ptsz(hEvent: CUevent, hStream: CUstream) |call| {
        record(&*call.stream(hStream)?, hEvent)
    }

    fn cuEventRecordWithFlags + cuEventRecordWithFlags_ptsz(hEvent: CUevent, hStream: CUstream, flags: c_uint) |call| {
        let stream = call.stream(hStream)?;
        require(flags & !EXTERNAL == 0, CUresult::INVALID_VALUE)?;
        require(flags == 0 || stream.capture().is_none(), CUresult::NOT_SUPPORTED)?;
        record(&stream, hEvent)
    }

    fn cuEventQuery(hEvent: CUevent) |call| {
        let event = of(hEvent)?;
        capture::forbid_unsafe()?;
        event.fault()?;
        require(event.is_passed()?, CUresult::NOT_READY)
    }

    fn cuEventSynchronize(hEvent: CUevent) |call| {
        let event = of(hEvent)?;
        capture::forbid_unsafe()?;
        event.points()?.iter().for_each(Point::wait);
        pool::trim_all(Place::Device(event.device));
        event.fault()
    }

    fn cuEventElapsedTime(pMilliseconds: *mut f32, hStart: CUevent, hEnd: CUevent) |call| {
        put(pMilliseconds, elapsed(hStart, hEnd)?)
    }

    fn cuEventElapsedTime_v2(pMilliseconds: *mut f32, hStart: CUevent, hEnd: CUevent) |call| {
        put(pMilliseconds, elapsed(hStart, hEnd)?)
    }
}
