//! Stream capture: calls become nodes of a graph instead of work.
//!
//! A capture begins on one stream. Another joins it by waiting for an event that was recorded in
//! it. It must end on the first stream, with all others joined back. While a capture of the
//! stricter modes is open, calls that would change the device or wait for it at once are errors
//! that end the capture.
//!
//! A recapture gives the nodes of an existing graph other work, in the order in which they were
//! added. Parameters of work are not compared, so a program's callback is never called.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;

use wm_abi::{
    CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    CU_STREAM_CAPTURE_STATUS_ACTIVE, CU_STREAM_CAPTURE_STATUS_INVALIDATED, CU_STREAM_CAPTURE_STATUS_NONE,
    CUgraph, CUgraphNode, CUresult, CUstream,
};

use crate::entry::{Outcome, exports, put, put_optional, require};
use crate::graph::{Graph, Kind};
use crate::graph_form::Form;
use crate::lane::Work;
use crate::state::driver;
use crate::stream::Stream;

/// One capture in progress.
#[derive(Debug)]
pub(crate) struct Capture {
    id: u64,
    /// The graph that it records into.
    pub(crate) graph: Arc<Graph>,
    /// Nodes of the graph that were captured again; `None` if the capture makes new ones.
    recaptured: Option<AtomicUsize>,
    mode: u32,
    thread: ThreadId,
    origin: u64,
    /// The context of the stream that it began on.
    context: u64,
    /// Would that context's legacy stream wait for the captured one?
    blocking: bool,
    invalid: AtomicBool,
    streams: Mutex<HashMap<u64, Member>>,
}

#[derive(Debug, Default)]
struct Member {
    stream: Weak<Stream>,
    frontier: Vec<usize>,
    /// Returned by `cuStreamGetCaptureInfo`, valid until the stream's next capture call.
    shown: Vec<CUgraphNode>,
}

static OPEN: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());

fn open() -> MutexGuard<'static, Vec<Arc<Capture>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The calling thread's own mode, which decides whether other threads' captures affect it.
    static MODE: Cell<u32> = const { Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL) };
}

impl Capture {
    fn streams(&self) -> MutexGuard<'_, HashMap<u64, Member>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Invalidates the capture: every later call on it reports that.
    pub(crate) fn invalidate(&self) {
        self.invalid.store(true, Ordering::Relaxed);
    }

    fn is_invalid(&self) -> bool {
        self.invalid.load(Ordering::Relaxed)
    }

    fn check(&self) -> Outcome {
        require(!self.is_invalid(), CUresult::STREAM_CAPTURE_INVALIDATED)
    }

    /// The nodes that a stream's next node will depend on.
    ///
    /// # Errors
    /// `STREAM_CAPTURE_INVALIDATED`.
    pub(crate) fn frontier(&self, stream: u64) -> Outcome<Vec<usize>> {
        self.check()?;
        Ok(self.streams().get(&stream).map(|member| member.frontier.clone()).unwrap_or_default())
    }

    /// Records work as the next node of a stream. Returns the node's handle.
    ///
    /// # Errors
    /// `STREAM_CAPTURE_INVALIDATED`; `GRAPH_RECAPTURE_FAILURE` if the graph that is captured again
    /// has another node there.
    pub(crate) fn add(&self, stream: u64, form: Form, work: Work) -> Outcome<usize> {
        self.check()?;
        let mut streams = self.streams();
        let member = streams.entry(stream).or_default();
        let node = match &self.recaptured {
            None => self.graph.add(form, work, member.frontier.clone()),
            Some(count) => self.add_again(count, form, work, &member.frontier)?,
        };
        member.frontier = vec![node];
        Ok(node)
    }

    /// Records a memory node and its block: the address and size, or the address that is freed.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub(crate) fn add_memory(&self, stream: u64, kind: Kind, block: (u64, usize)) -> Outcome {
        let handle = self.add(stream, kind.into(), Arc::new(|| Ok(())))?;
        crate::graph::node(CUgraphNode(handle))?.block.get_or_init(|| block);
        Ok(())
    }

    fn add_again(&self, count: &AtomicUsize, form: Form, work: Work, frontier: &[usize]) -> Outcome<usize> {
        let set = |nodes: &[usize]| nodes.iter().copied().collect::<HashSet<_>>();
        let node = self.graph.nodes().get(count.fetch_add(1, Ordering::Relaxed)).cloned();
        let node = node.filter(|node| node.kind == form.kind() && set(&node.after()) == set(frontier));
        let node = node.ok_or_else(|| self.fail_again())?;
        node.change(form, work);
        Ok(node.handle)
    }

    fn fail_again(&self) -> CUresult {
        self.invalidate();
        CUresult::GRAPH_RECAPTURE_FAILURE
    }

    /// The block of the memory node that is captured again next. `None`: the capture makes new
    /// nodes.
    ///
    /// # Errors
    /// `GRAPH_RECAPTURE_FAILURE` if the next node has no block of this address and size.
    pub(crate) fn expect_block(&self, is_it: impl Fn(&(u64, usize)) -> bool) -> Outcome<Option<u64>> {
        let Some(count) = &self.recaptured else { return Ok(None) };
        let node = self.graph.nodes().get(count.load(Ordering::Relaxed)).cloned();
        let block = node.and_then(|node| node.block.get().copied()).filter(is_it);
        block.map(|(start, _)| Some(start)).ok_or_else(|| self.fail_again())
    }

    /// Were all nodes of the graph captured again, if any had to be?
    fn is_whole(&self) -> bool {
        let whole = |count: &AtomicUsize| count.load(Ordering::Relaxed) == self.graph.nodes().len();
        self.recaptured.as_ref().is_none_or(whole)
    }

    /// Makes a stream's next node depend on nodes of this capture; the stream becomes part of it.
    ///
    /// # Errors
    /// `STREAM_CAPTURE_MERGE` if the stream is part of another capture.
    pub(crate) fn join(
        self: &Arc<Self>,
        stream: &Arc<Stream>,
        own: Option<&Arc<Self>>,
        nodes: &[usize],
    ) -> Outcome {
        if let Some(other) = own.filter(|own| !Arc::ptr_eq(own, self)) {
            other.invalidate();
            self.invalidate();
            return Err(CUresult::STREAM_CAPTURE_MERGE);
        }
        self.check()?;
        require(!stream.is_legacy(), CUresult::STREAM_CAPTURE_IMPLICIT)?;
        stream.set_capture(Some(Arc::clone(self)));
        let mut streams = self.streams();
        let member = streams.entry(stream.id).or_default();
        member.stream = Arc::downgrade(stream);
        let fresh: Vec<usize> =
            nodes.iter().copied().filter(|node| !member.frontier.contains(node)).collect();
        member.frontier.extend(fresh);
        Ok(())
    }

    /// Has every other stream's last work been waited for by the first stream?
    fn is_joined(&self) -> bool {
        let streams = self.streams();
        let origin = streams.get(&self.origin).map(|member| member.frontier.clone()).unwrap_or_default();
        let reached: HashSet<usize> = self.graph.ancestors(origin);
        streams.values().flat_map(|member| &member.frontier).all(|node| reached.contains(node))
    }

    fn close(self: &Arc<Self>) {
        open().retain(|capture| !Arc::ptr_eq(capture, self));
        let members: Vec<_> = self.streams().values().filter_map(|member| member.stream.upgrade()).collect();
        members.iter().for_each(|stream| stream.set_capture(None));
    }
}

/// A stream of a capture is destroyed. The capture is then invalid. If it began on this stream it
/// also ends, and forbids no more calls.
pub(crate) fn end_of_stream(stream: &Stream) {
    if let Some(capture) = stream.capture() {
        capture.invalidate();
        if capture.origin == stream.id {
            capture.close();
        }
    }
}

/// Ends the captures that began in a context's streams, unfinished: they forbid no more calls.
pub(crate) fn end_of_context(context: u64) {
    let ended: Vec<_> = open().extract_if(.., |capture| capture.context == context).collect();
    ended.iter().for_each(|capture| capture.invalidate());
    ended.iter().for_each(Capture::close);
}

/// For calls that would act on the device at once, such as `cuMemAlloc`.
///
/// # Errors
/// `STREAM_CAPTURE_UNSUPPORTED` if an open capture forbids it to this thread; the capture is then
/// lost.
pub(crate) fn forbid_unsafe() -> Outcome {
    let (mode, thread) = (MODE.get(), std::thread::current().id());
    let forbids = |capture: &Arc<Capture>| match (mode, capture.mode) {
        (CU_STREAM_CAPTURE_MODE_RELAXED, _) | (_, CU_STREAM_CAPTURE_MODE_RELAXED) => false,
        (CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL) => true,
        _ => capture.thread == thread,
    };
    let broken: Vec<_> = open().iter().filter(|capture| forbids(capture)).cloned().collect();
    broken.iter().for_each(|capture| capture.invalidate());
    require(broken.is_empty(), CUresult::STREAM_CAPTURE_UNSUPPORTED)
}

/// For events of a whole context, and waits for a context.
///
/// # Errors
/// `STREAM_CAPTURE_UNSUPPORTED` if one of its streams is under capture, in any mode; the capture is
/// then lost.
pub(crate) fn forbid_of_context(context: u64) -> Outcome {
    let broken: Vec<_> = open().iter().filter(|capture| capture.context == context).cloned().collect();
    broken.iter().for_each(|capture| capture.invalidate());
    require(broken.is_empty(), CUresult::STREAM_CAPTURE_UNSUPPORTED)
}

/// For calls that cannot be captured.
///
/// # Errors
/// `STREAM_CAPTURE_UNSUPPORTED` if the stream is under capture; the capture is then lost.
pub(crate) fn forbid_in_stream(stream: &Stream) -> Outcome {
    let captured = stream.capture();
    captured.iter().for_each(|capture| capture.invalidate());
    require(captured.is_none(), CUresult::STREAM_CAPTURE_UNSUPPORTED)
}

/// For work on a context's legacy default stream, which waits for blocking streams.
///
/// # Errors
/// `STREAM_CAPTURE_IMPLICIT` if one of those is under capture; the capture is then lost.
pub(crate) fn forbid_implicit(context: u64) -> Outcome {
    let implied = |capture: &&Arc<Capture>| capture.blocking && capture.context == context;
    let broken: Vec<_> = open().iter().filter(implied).cloned().collect();
    broken.iter().for_each(|capture| capture.invalidate());
    require(broken.is_empty(), CUresult::STREAM_CAPTURE_IMPLICIT)
}

fn begin(
    stream: &Arc<Stream>,
    mode: u32,
    graph: Arc<Graph>,
    frontier: Vec<usize>,
    recaptured: Option<AtomicUsize>,
) -> Outcome {
    require(mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUresult::INVALID_VALUE)?;
    require(!stream.is_legacy(), CUresult::STREAM_CAPTURE_UNSUPPORTED)?;
    require(stream.capture().is_none(), CUresult::ILLEGAL_STATE)?;
    let member = Member { stream: Arc::downgrade(stream), frontier, shown: Vec::new() };
    let capture = Arc::new(Capture {
        id: crate::memory::store::unique(),
        graph,
        recaptured,
        mode,
        thread: std::thread::current().id(),
        origin: stream.id,
        context: stream.context_id,
        blocking: stream.lane.blocking,
        invalid: AtomicBool::new(false),
        streams: Mutex::new(HashMap::from([(stream.id, member)])),
    });
    stream.set_capture(Some(Arc::clone(&capture)));
    open().push(capture);
    Ok(())
}

fn end(stream: &Stream) -> Outcome<CUgraph> {
    let capture = stream.capture().ok_or(CUresult::ILLEGAL_STATE)?;
    require(capture.origin == stream.id, CUresult::STREAM_CAPTURE_UNMATCHED)?;
    let foreign =
        capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread != std::thread::current().id();
    require(!foreign, CUresult::STREAM_CAPTURE_WRONG_THREAD)?;
    let (valid, joined, whole) = (capture.check(), capture.is_joined(), capture.is_whole());
    capture.close();
    valid?;
    require(whole, CUresult::GRAPH_RECAPTURE_FAILURE)?;
    require(joined, CUresult::STREAM_CAPTURE_UNJOINED)?;
    driver().graphs.enter(capture.graph.handle, Arc::clone(&capture.graph));
    Ok(CUgraph(capture.graph.handle))
}

/// The result of `cuStreamGetCaptureInfo` and `cuStreamIsCapturing`.
fn status(stream: &Stream) -> (c_uint, Option<Arc<Capture>>) {
    match stream.capture() {
        None => (CU_STREAM_CAPTURE_STATUS_NONE, None),
        Some(capture) if capture.is_invalid() => (CU_STREAM_CAPTURE_STATUS_INVALIDATED, None),
        Some(capture) => (CU_STREAM_CAPTURE_STATUS_ACTIVE, Some(capture)),
    }
}

/// The places for the results of `cuStreamGetCaptureInfo_v2` and `_v3`.
struct Wanted {
    status: *mut c_uint,
    id: *mut u64,
    graph: *mut CUgraph,
    dependencies: *mut *const CUgraphNode,
    count: *mut usize,
}

/// # Safety
/// Every place that is not null is valid for a write.
unsafe fn inform(stream: &Stream, wanted: &Wanted) -> Outcome {
    let (status, capture) = status(stream);
    // SAFETY: by contract.
    unsafe { put(wanted.status, status)? };
    let Some(capture) = capture else { return Ok(()) };
    driver().graphs.enter(capture.graph.handle, Arc::clone(&capture.graph));
    let mut streams = capture.streams();
    let member = streams.entry(stream.id).or_default();
    member.shown = member.frontier.iter().map(|node| CUgraphNode(*node)).collect();
    // SAFETY: by contract; the array lives until the stream's next call of this kind.
    unsafe {
        put_optional(wanted.id, capture.id);
        put_optional(wanted.graph, CUgraph(capture.graph.handle));
        put_optional(wanted.dependencies, member.shown.as_ptr());
        put_optional(wanted.count, member.shown.len());
    }
    Ok(())
}

fn update(stream: &Stream, nodes: &[CUgraphNode], replace: bool) -> Outcome {
    let capture = stream.capture().ok_or(CUresult::ILLEGAL_STATE)?;
    capture.check()?;
    let mut streams = capture.streams();
    let member = streams.entry(stream.id).or_default();
    if replace {
        member.frontier.clear();
    }
    member.frontier.extend(nodes.iter().map(|node| node.0));
    Ok(())
}

exports! {
    fn cuStreamBeginCapture + cuStreamBeginCapture_ptsz(hStream: CUstream) |call| {
        let stream = call.stream(hStream)?;
        begin(&stream, CU_STREAM_CAPTURE_MODE_GLOBAL, Graph::new(), Vec::new(), None)
    }

    fn cuStreamBeginCapture_v2 + cuStreamBeginCapture_v2_ptsz(hStream: CUstream, mode: c_uint) |call| {
        let stream = call.stream(hStream)?;
        begin(&stream, mode, Graph::new(), Vec::new(), None)
    }

    fn cuStreamBeginCaptureToGraph + cuStreamBeginCaptureToGraph_ptsz(hStream: CUstream, hGraph: CUgraph, dependencies: *const CUgraphNode, dependencyData: *const c_void, numDependencies: usize, mode: c_uint) |call| {
        let stream = call.stream(hStream)?;
        let graph = driver().graphs.get(hGraph.0).ok_or(CUresult::INVALID_VALUE)?;
        let nodes = crate::entry::get_all(dependencies, numDependencies)?;
        begin(&stream, mode, graph, nodes.iter().map(|node| node.0).collect(), None)
    }

    fn cuStreamBeginRecaptureToGraph + cuStreamBeginRecaptureToGraph_ptsz(hStream: CUstream, mode: c_uint, hGraph: CUgraph, callbackFunc: *mut c_void, userData: *mut c_void) |call| {
        let stream = call.stream(hStream)?;
        let graph = driver().graphs.get(hGraph.0).ok_or(CUresult::INVALID_VALUE)?;
        begin(&stream, mode, graph, Vec::new(), Some(AtomicUsize::new(0)))
    }

    /// No context here was made for a graphics interface.
    fn cuStreamBeginCaptureToCig + cuStreamBeginCaptureToCig_ptsz(hStream: CUstream, streamCigCaptureParams: *mut c_void) |call| {
        call.stream(hStream)?;
        Err(CUresult::INVALID_CONTEXT)
    }

    /// No such capture has begun.
    fn cuStreamEndCaptureToCig + cuStreamEndCaptureToCig_ptsz(hStream: CUstream) |call| {
        call.stream(hStream)?;
        Err(CUresult::INVALID_VALUE)
    }

    fn cuStreamEndCapture + cuStreamEndCapture_ptsz(hStream: CUstream, phGraph: *mut CUgraph) |call| {
        require(!phGraph.is_null(), CUresult::INVALID_VALUE)?;
        put(phGraph, CUgraph::NULL)?;
        let stream = call.stream(hStream)?;
        put(phGraph, end(&stream)?)
    }

    fn cuStreamIsCapturing + cuStreamIsCapturing_ptsz(hStream: CUstream, captureStatus: *mut c_uint) |call| {
        let stream = call.stream(hStream)?;
        if stream.is_legacy() {
            forbid_implicit(stream.context_id)?;
        }
        put(captureStatus, status(&stream).0)
    }

    fn cuStreamGetCaptureInfo + cuStreamGetCaptureInfo_ptsz(hStream: CUstream, captureStatus_out: *mut c_uint, id_out: *mut u64) |call| {
        let (status, capture) = status(&*call.stream(hStream)?);
        put_optional(id_out, capture.map_or(0, |capture| capture.id));
        put(captureStatus_out, status)
    }

    fn cuStreamGetCaptureInfo_v2 + cuStreamGetCaptureInfo_v2_ptsz(hStream: CUstream, captureStatus_out: *mut c_uint, id_out: *mut u64, graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode, numDependencies_out: *mut usize) |call| {
        let stream = call.stream(hStream)?;
        inform(&stream, &Wanted { status: captureStatus_out, id: id_out, graph: graph_out, dependencies: dependencies_out, count: numDependencies_out })
    }

    fn cuStreamGetCaptureInfo_v3 + cuStreamGetCaptureInfo_v3_ptsz(hStream: CUstream, captureStatus_out: *mut c_uint, id_out: *mut u64, graph_out: *mut CUgraph, dependencies_out: *mut *const CUgraphNode, edgeData_out: *mut *const c_void, numDependencies_out: *mut usize) |call| {
        let stream = call.stream(hStream)?;
        put_optional(edgeData_out, std::ptr::null());
        inform(&stream, &Wanted { status: captureStatus_out, id: id_out, graph: graph_out, dependencies: dependencies_out, count: numDependencies_out })
    }

    fn cuStreamUpdateCaptureDependencies + cuStreamUpdateCaptureDependencies_ptsz(hStream: CUstream, dependencies: *mut CUgraphNode, numDependencies: usize, flags: c_uint) |call| {
        require(flags <= 1, CUresult::INVALID_VALUE)?;
        update(&*call.stream(hStream)?, &crate::entry::get_all(dependencies, numDependencies)?, flags == 1)
    }

    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) |call| {
        let wanted = crate::entry::get(mode)?;
        require(wanted <= CU_STREAM_CAPTURE_MODE_RELAXED, CUresult::INVALID_VALUE)?;
        put(mode, MODE.replace(wanted))
    }
}

const _: () = assert!(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL < CU_STREAM_CAPTURE_MODE_RELAXED);
