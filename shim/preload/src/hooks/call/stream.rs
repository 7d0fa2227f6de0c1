//! Streams: which one a null handle means, when one is created or destroyed, and when one is
//! captured.

use std::ffi::{c_int, c_uint, c_void};
use std::time::Duration;

use wm_abi::symbol::Symbol;
use wm_abi::{
    CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_NON_BLOCKING, CUgraph, CUgraphNode, CUlaunchConfig, CUresult,
    CUstream,
};
use wm_driver::Api;
use wm_multipath::PlainCall;

use super::boundary::Outcome;
use crate::multipath;
use crate::process::{driver, streams};
use crate::registry;
use crate::subsystems::PROCESS;

/// The longest that a capture waits for calls of ours that it would forbid. They take microseconds,
/// but a busy machine may take the processor away from such a call for tens of milliseconds.
const UNAWARE: Duration = Duration::from_secs(1);

/// The stream that a null handle stands for in one family of entry points.
pub(in crate::hooks) trait DefaultStream {
    const HANDLE: CUstream;
}

/// The default stream of plain functions, or of per-thread ones.
pub(in crate::hooks) struct DefaultStreamOf<const IS_PER_THREAD: bool>;

/// Plain functions: the legacy default stream.
pub(in crate::hooks) type Legacy = DefaultStreamOf<false>;

/// `_ptsz` and `_ptds` functions: the calling thread's default stream.
pub(in crate::hooks) type PerThread = DefaultStreamOf<true>;

impl DefaultStream for Legacy {
    const HANDLE: CUstream = CUstream::LEGACY;
}

impl DefaultStream for PerThread {
    const HANDLE: CUstream = CUstream::PER_THREAD;
}

/// The stream that a handle stands for, which the call is about to work in.
#[inline]
pub(in crate::hooks) fn resolve_default<D: DefaultStream>(stream: CUstream) -> CUstream {
    let stream = if stream.is_null() { D::HANDLE } else { stream };
    record_work(stream);
    stream
}

/// An argument that names a stream.
pub(in crate::hooks) trait NamesStream {
    fn stream(&self) -> CUstream;
}

impl NamesStream for CUstream {
    #[inline]
    fn stream(&self) -> CUstream {
        *self
    }
}

impl NamesStream for *const CUlaunchConfig {
    #[inline]
    fn stream(&self) -> CUstream {
        // SAFETY: null, or the program's description of a launch.
        unsafe { self.as_ref() }.map_or(CUstream::NULL, |config| config.hStream)
    }
}

/// Notes that work goes into this stream. A per-thread default stream is blocking and is never
/// created: its first use is seen here. Where another thread is in the middle of a copy there, the
/// work comes behind it.
#[inline]
pub(in crate::hooks) fn record_work(stream: impl NamesStream) {
    let stream = stream.stream();
    note_per_thread(stream);
    multipath::follow(stream);
}

/// The same for a call that goes to the driver next, for as long as the value lives.
#[inline]
pub(in crate::hooks) fn enter_with_work(stream: impl NamesStream) -> Option<PlainCall<'static>> {
    let stream = stream.stream();
    note_per_thread(stream);
    multipath::enter(stream)
}

#[inline]
fn note_per_thread(stream: CUstream) {
    if stream == CUstream::PER_THREAD {
        streams().note_blocking();
    }
}

/// Is any stream of the process being captured?
#[inline]
pub(in crate::hooks) fn is_any_captured() -> bool {
    streams().capturing()
}

/// Is this stream being captured? The driver is asked only while the process captures at all.
#[inline]
pub(in crate::hooks) fn is_captured<D: DefaultStream>(stream: CUstream) -> bool {
    is_any_captured() && ask_is_captured(resolve_default::<D>(stream))
}

#[cold]
#[inline(never)]
fn ask_is_captured(stream: CUstream) -> bool {
    driver().stream_is_capturing(stream) != Ok(CU_STREAM_CAPTURE_STATUS_NONE)
}

/// `cuStreamCreate`. Once there is a blocking stream, work in it is ordered with frees in the
/// legacy default stream.
pub(in crate::hooks) fn stream_create(_stream: *mut CUstream, flags: c_uint) -> Outcome {
    if flags & CU_STREAM_NON_BLOCKING == 0 {
        streams().note_blocking();
    }
    Outcome::Forward
}

/// `cuStreamCreateWithPriority`.
pub(in crate::hooks) fn stream_create_with_priority(
    stream: *mut CUstream,
    flags: c_uint,
    _priority: c_int,
) -> Outcome {
    stream_create(stream, flags)
}

/// `cuStreamDestroy`.
pub(in crate::hooks) fn stream_destroy(stream: CUstream) -> Outcome {
    if !stream.is_null() {
        registry::all().for_each(|manager| manager.gpu().end_stream(stream));
        registry::retire_streams(&streams().with_handle(stream));
        streams().capture_ended(stream);
    }
    Outcome::Forward
}

/// `cuStreamBeginCapture`, and its per-thread twin.
pub(in crate::hooks) unsafe fn stream_begin_capture<S, D>(stream: CUstream) -> CUresult
where
    S: Symbol<Function = unsafe extern "C" fn(CUstream) -> CUresult>,
    D: DefaultStream,
{
    // SAFETY: the program's arguments.
    begun(resolve_default::<D>(stream), || unsafe { driver().get::<S>()(stream) })
}

/// `cuStreamBeginCapture_v2`, and its per-thread twin.
pub(in crate::hooks) unsafe fn stream_begin_capture_v2<S, D>(stream: CUstream, mode: c_uint) -> CUresult
where
    S: Symbol<Function = unsafe extern "C" fn(CUstream, c_uint) -> CUresult>,
    D: DefaultStream,
{
    // SAFETY: the program's arguments.
    begun(resolve_default::<D>(stream), || unsafe { driver().get::<S>()(stream, mode) })
}

type ToGraph =
    unsafe extern "C" fn(CUstream, CUgraph, *const CUgraphNode, *const c_void, usize, c_uint) -> CUresult;

/// `cuStreamBeginCaptureToGraph`, and its per-thread twin.
pub(in crate::hooks) unsafe fn stream_begin_capture_to_graph<
    S: Symbol<Function = ToGraph>,
    D: DefaultStream,
>(
    stream: CUstream,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    edges: *const c_void,
    count: usize,
    mode: c_uint,
) -> CUresult {
    // SAFETY: the program's arguments.
    begun(resolve_default::<D>(stream), || unsafe {
        driver().get::<S>()(stream, graph, dependencies, edges, count, mode)
    })
}

type Recapture = unsafe extern "C" fn(CUstream, c_uint, CUgraph, *mut c_void, *mut c_void) -> CUresult;

/// `cuStreamBeginRecaptureToGraph`, and its per-thread twin.
pub(in crate::hooks) unsafe fn stream_begin_recapture_to_graph<
    S: Symbol<Function = Recapture>,
    D: DefaultStream,
>(
    stream: CUstream,
    mode: c_uint,
    graph: CUgraph,
    callback: *mut c_void,
    user_data: *mut c_void,
) -> CUresult {
    // SAFETY: the program's arguments.
    begun(resolve_default::<D>(stream), || unsafe {
        driver().get::<S>()(stream, mode, graph, callback, user_data)
    })
}

/// `cuStreamBeginCaptureToCig`, and its per-thread twin: calls become commands of a graphics
/// interface.
pub(in crate::hooks) unsafe fn stream_begin_capture_to_cig<S, D>(
    stream: CUstream,
    parameters: *mut c_void,
) -> CUresult
where
    S: Symbol<Function = unsafe extern "C" fn(CUstream, *mut c_void) -> CUresult>,
    D: DefaultStream,
{
    // SAFETY: the program's arguments.
    begun(resolve_default::<D>(stream), || unsafe { driver().get::<S>()(stream, parameters) })
}

/// Notes the capture before the driver begins it, so that no driver call of ours gets into it.
fn begun(stream: CUstream, begin: impl FnOnce() -> CUresult) -> CUresult {
    let context = registry::context_of_stream(stream).unwrap_or_default();
    PROCESS.sharing.capturing(|| streams().capture_began(context, stream));
    streams().await_unaware(UNAWARE);
    let result = begin();
    if result != CUresult::SUCCESS {
        streams().capture_ended(stream);
    }
    result
}

/// `cuStreamEndCapture`, and its per-thread twin. A capture that has become invalid ends too, with
/// an error.
pub(in crate::hooks) unsafe fn stream_end_capture<S, D>(stream: CUstream, graph: *mut CUgraph) -> CUresult
where
    S: Symbol<Function = unsafe extern "C" fn(CUstream, *mut CUgraph) -> CUresult>,
    D: DefaultStream,
{
    // SAFETY: the program's arguments.
    let result = unsafe { driver().get::<S>()(stream, graph) };
    ended(resolve_default::<D>(stream), result);
    result
}

/// `cuStreamEndCaptureToCig`, and its per-thread twin.
pub(in crate::hooks) unsafe fn stream_end_capture_to_cig<S, D>(stream: CUstream) -> CUresult
where
    S: Symbol<Function = unsafe extern "C" fn(CUstream) -> CUresult>,
    D: DefaultStream,
{
    // SAFETY: the program's arguments.
    let result = unsafe { driver().get::<S>()(stream) };
    ended(resolve_default::<D>(stream), result);
    result
}

/// The driver was asked to end a capture.
fn ended(stream: CUstream, result: CUresult) {
    let still = matches!(result, CUresult::STREAM_CAPTURE_WRONG_THREAD | CUresult::ILLEGAL_STATE);
    if !still {
        streams().capture_ended(stream);
    }
}

/// Does the null stream mean the calling thread's own stream in this function?
pub(crate) const fn is_per_thread(name: &str) -> bool {
    let bytes = name.as_bytes();
    matches!(bytes, [.., b'_', b'p', b't', b's', b'z'] | [.., b'_', b'p', b't', b'd', b's'])
}

/// Notes that per-thread default streams are in use: they are blocking streams that no call
/// creates.
#[inline]
pub(in crate::hooks) fn record_per_thread(is_per_thread: bool) {
    if is_per_thread {
        streams().note_blocking();
    }
}
