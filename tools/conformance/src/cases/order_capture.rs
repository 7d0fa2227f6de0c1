//! Captures beside other work: the captured streams, the calls that a capture forbids, and the work
//! that it must not affect.
//!
//! Default streams of threads share one handle. If a library identifies captures by handle, the end
//! of one thread's capture ends all of them, and the other threads' allocations are served outside
//! of their graphs: a replay then uses memory that has another owner.

use wm_abi::*;

use super::graph::node_types;
use crate::case::{Case, Verdict, short};
use crate::driver::Driver;
use crate::fixture::{Event, Memory, Primary, Stream, alloc_async, device_properties, synchronize};
use crate::{cu, must};

const BYTES: usize = 1 << 20;
const MODES: [(&str, u32); 3] = [
    ("global", CU_STREAM_CAPTURE_MODE_GLOBAL),
    ("thread-local", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
    ("relaxed", CU_STREAM_CAPTURE_MODE_RELAXED),
];

/// The calls by which a program uses its thread's default stream.
#[derive(Clone, Copy)]
enum Way {
    ByHandle,
    ByVariant,
}

fn begin(driver: &'static Driver, way: Way, mode: u32) -> Verdict {
    match way {
        Way::ByHandle => must!(driver, cuStreamBeginCapture_v2(CUstream::PER_THREAD, mode)),
        Way::ByVariant => must!(driver, cuStreamBeginCapture_v2_ptsz(CUstream::NULL, mode)),
    }
    Ok(())
}

fn end(driver: &'static Driver, way: Way) -> Verdict<CUgraph> {
    let mut graph = CUgraph::NULL;
    match way {
        Way::ByHandle => must!(driver, cuStreamEndCapture(CUstream::PER_THREAD, &mut graph)),
        Way::ByVariant => must!(driver, cuStreamEndCapture_ptsz(CUstream::NULL, &mut graph)),
    }
    Ok(graph)
}

/// An allocation, a memset and a free in the thread's default stream, which is under capture.
fn temporary(driver: &'static Driver, way: Way) -> Verdict<CUdeviceptr> {
    let mut address = 0;
    match way {
        Way::ByHandle => {
            let stream = CUstream::PER_THREAD;
            must!(driver, cuMemAllocAsync(&mut address, BYTES, stream));
            must!(driver, cuMemsetD8Async(address, 3, BYTES, stream));
            must!(driver, cuMemFreeAsync(address, stream));
        }
        Way::ByVariant => {
            let stream = CUstream::NULL;
            must!(driver, cuMemAllocAsync_ptsz(&mut address, BYTES, stream));
            must!(driver, cuMemsetD8Async_ptsz(address, 3, BYTES, stream));
            must!(driver, cuMemFreeAsync_ptsz(address, stream));
        }
    }
    Ok(address)
}

/// A memset, an allocation, a free.
const TEMPORARY: [u32; 3] = [2, 10, 11];

fn replay(case: &mut Case, label: &str, graph: CUgraph) -> Verdict {
    let d = case.driver;
    let mut ready = CUgraphExec::NULL;
    must!(d, cuGraphInstantiateWithFlags(&mut ready, graph, 0));
    let stream = Stream::non_blocking(d)?;
    for _ in 0..3 {
        must!(d, cuGraphLaunch(ready, stream.raw));
    }
    case.expect_ok(&format!("{label}: replay"), cu!(d, cuStreamSynchronize(stream.raw)));
    must!(d, cuGraphExecDestroy(ready));
    must!(d, cuGraphDestroy(graph));
    Ok(())
}

/// Runs `work` to its end in another thread, in the same context.
fn elsewhere<T: Send>(primary: &Primary, work: impl FnOnce() -> Verdict<T> + Send) -> Verdict<T> {
    let run = || {
        primary.enter()?;
        work()
    };
    let lost = || Err(crate::case::Halt::Failed("the other thread panicked".into()));
    std::thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|_| lost())
}

pub(super) fn default_streams_of_two_threads(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    for (name, way) in [("by handle", Way::ByHandle), ("by variant", Way::ByVariant)] {
        begin(d, way, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        let others = elsewhere(&primary, || {
            begin(d, way, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
            temporary(d, way)?;
            end(d, way).map(|graph| graph.0)
        })?;
        temporary(d, way)?;
        let graph = end(d, way)?;
        let types = (node_types(d, CUgraph(others))?, node_types(d, graph)?);
        case.expect_eq(
            &format!("{name}: nodes of the capture that ended first"),
            types.0,
            TEMPORARY.to_vec(),
        );
        case.expect_eq(&format!("{name}: nodes of the capture that ended last"), types.1, TEMPORARY.to_vec());
        replay(case, &format!("{name}, first"), CUgraph(others))?;
        replay(case, &format!("{name}, last"), graph)?;
    }
    Ok(())
}

/// A thread's default stream is captured; another thread's, with the same handle, is not.
pub(super) fn default_stream_beside_a_capture(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    begin(d, Way::ByHandle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    let (codes, address) = elsewhere(&primary, || {
        let (mut address, stream) = (0, CUstream::PER_THREAD);
        let allocated = cu!(d, cuMemAllocAsync(&mut address, BYTES, stream));
        let set = cu!(d, cuMemsetD8Async(address, 3, BYTES, stream));
        Ok(([allocated, set, cu!(d, cuStreamSynchronize(stream))], address))
    })?;
    for (name, code) in ["allocation", "memset", "wait"].iter().zip(codes) {
        case.expect_ok(&format!("{name} in the other thread's stream"), code);
    }
    temporary(d, Way::ByHandle)?;
    let graph = end(d, Way::ByHandle)?;
    case.expect_eq("nodes", node_types(d, graph)?, TEMPORARY.to_vec());
    replay(case, "the capture", graph)?;
    case.expect_that("the other thread's bytes", crate::fixture::read(d, address, BYTES)? == [3; BYTES]);
    case.expect_ok("free", cu!(d, cuMemFreeAsync(address, CUstream::PER_THREAD)));
    synchronize(d, CUstream::PER_THREAD)
}

/// The arguments of the calls beside a capture.
struct Things {
    driver: &'static Driver,
    stream: Stream,
    event: Event,
    block: CUdeviceptr,
    plain: CUdeviceptr,
    pool: CUmemoryPool,
}

impl Things {
    fn new(driver: &'static Driver) -> Verdict<Self> {
        let stream = Stream::non_blocking(driver)?;
        let event = Event::new(driver, CU_EVENT_DISABLE_TIMING)?;
        event.record(stream.raw)?;
        let (block, mut plain) = (alloc_async(driver, BYTES, stream.raw)?, 0);
        must!(driver, cuMemAlloc_v2(&mut plain, BYTES));
        synchronize(driver, stream.raw)?;
        Ok(Self { driver, stream, event, block, plain, pool: super::pool::default_pool(driver)? })
    }
}

type Ask = fn(&Things) -> CUresult;

/// Calls that an open capture may forbid. Each leaks at most some memory.
const CALLS: &[(&str, Ask)] = &[
    ("cuMemAlloc", |t| {
        let mut address = 0;
        cu!(t.driver, cuMemAlloc_v2(&mut address, BYTES))
    }),
    ("cuMemFree", |t| cu!(t.driver, cuMemFree_v2(t.plain))),
    ("cuMemAllocAsync", |t| {
        let mut address = 0;
        cu!(t.driver, cuMemAllocAsync(&mut address, BYTES, t.stream.raw))
    }),
    ("cuMemAllocFromPoolAsync", |t| {
        let mut address = 0;
        cu!(t.driver, cuMemAllocFromPoolAsync(&mut address, BYTES, t.pool, t.stream.raw))
    }),
    ("cuMemFreeAsync", |t| cu!(t.driver, cuMemFreeAsync(t.block, t.stream.raw))),
    ("cuMemPoolTrimTo", |t| cu!(t.driver, cuMemPoolTrimTo(t.pool, 0))),
    ("cuMemGetInfo", |t| {
        let (mut free, mut total) = (0, 0);
        cu!(t.driver, cuMemGetInfo_v2(&mut free, &mut total))
    }),
    ("cuMemCreate", |t| {
        let (mut handle, properties) = (0, device_properties(0, 0));
        cu!(t.driver, cuMemCreate(&mut handle, 2 << 20, &properties, 0))
    }),
    ("cuMemGetAddressRange", |t| {
        let (mut base, mut size) = (0, 0);
        cu!(t.driver, cuMemGetAddressRange_v2(&mut base, &mut size, t.plain))
    }),
    ("cuMemcpyDtoH", |t| {
        let mut bytes = [0_u8; 16];
        cu!(t.driver, cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), t.plain, 16))
    }),
    ("cuMemsetD8", |t| cu!(t.driver, cuMemsetD8_v2(t.plain, 1, 16))),
    ("cuStreamQuery", |t| cu!(t.driver, cuStreamQuery(t.stream.raw))),
    ("cuStreamSynchronize", |t| cu!(t.driver, cuStreamSynchronize(t.stream.raw))),
    ("cuStreamCreate", |t| {
        let mut stream = CUstream::NULL;
        cu!(t.driver, cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING))
    }),
    ("cuEventQuery", |t| cu!(t.driver, cuEventQuery(t.event.raw))),
    ("cuEventSynchronize", |t| cu!(t.driver, cuEventSynchronize(t.event.raw))),
    ("cuEventCreate", |t| {
        let mut event = CUevent::NULL;
        cu!(t.driver, cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING))
    }),
    ("cuEventRecord", |t| cu!(t.driver, cuEventRecord(t.event.raw, t.stream.raw))),
    ("cuStreamWaitEvent", |t| cu!(t.driver, cuStreamWaitEvent(t.stream.raw, t.event.raw, 0))),
    ("cuCtxSynchronize", |t| cu!(t.driver, cuCtxSynchronize())),
    ("cuCtxRecordEvent", |t| cu!(t.driver, cuCtxRecordEvent(CUcontext::NULL, t.event.raw))),
];

/// Makes a call during a capture. Returns its answer, and whether the capture is lost.
fn beside(primary: &Primary, mode: u32, other_thread: bool, ask: Ask) -> Verdict<String> {
    let d = primary.driver;
    let (things, captured) = (Things::new(d)?, Stream::non_blocking(d)?);
    must!(d, cuStreamBeginCapture_v2(captured.raw, mode));
    let code = if other_thread { elsewhere(primary, || Ok(ask(&things).0))? } else { ask(&things).0 };
    let mut graph = CUgraph::NULL;
    let ended = cu!(d, cuStreamEndCapture(captured.raw, &mut graph));
    Ok(format!("{}, capture: {}", short(CUresult(code)), short(ended)))
}

/// Every call of the list, from the capturing thread and from another one.
fn all_calls(case: &mut Case, mode: u32) -> Verdict {
    let primary = Primary::new(case.driver)?;
    for (name, ask) in CALLS {
        for (thread, other) in [("same thread", false), ("another thread", true)] {
            case.observe(format!("{name}, {thread}"), beside(&primary, mode, other, *ask)?);
        }
    }
    Ok(())
}

pub(super) fn calls_beside_a_global_capture(case: &mut Case) -> Verdict {
    all_calls(case, CU_STREAM_CAPTURE_MODE_GLOBAL)
}

pub(super) fn calls_beside_a_thread_local_capture(case: &mut Case) -> Verdict {
    all_calls(case, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
}

pub(super) fn calls_beside_a_relaxed_capture(case: &mut Case) -> Verdict {
    all_calls(case, CU_STREAM_CAPTURE_MODE_RELAXED)
}

/// An event of a whole context: with its handle and without, with and without a capture in it. The
/// list above passes no handle, and the call is refused in every mode: the case shows whether the
/// capture causes that.
pub(super) fn event_of_a_context(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let event = Event::new(d, CU_EVENT_DISABLE_TIMING)?;
    for (name, context) in [("named", primary.context), ("not named", CUcontext::NULL)] {
        let code = cu!(d, cuCtxRecordEvent(context, event.raw));
        case.code(format!("{name}: record without a capture"), code);
        let code = cu!(d, cuCtxWaitEvent(context, event.raw));
        case.code(format!("{name}: wait without a capture"), code);
        for (mode_name, mode) in MODES {
            let (captured, mut graph) = (Stream::non_blocking(d)?, CUgraph::NULL);
            must!(d, cuStreamBeginCapture_v2(captured.raw, mode));
            let code = cu!(d, cuCtxRecordEvent(context, event.raw));
            case.code(format!("{name}, {mode_name}: record"), code);
            let ended = cu!(d, cuStreamEndCapture(captured.raw, &mut graph));
            case.code(format!("{name}, {mode_name}: end of the capture"), ended);
        }
    }
    Ok(())
}

/// Memory whose free was refused still belongs to the program; after the capture all calls work
/// again.
pub(super) fn memory_after_a_lost_capture(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    for (name, mode) in MODES {
        let things = Things::new(d)?;
        let captured = Stream::non_blocking(d)?;
        must!(d, cuMemsetD8_v2(things.plain, 7, BYTES));
        must!(d, cuStreamBeginCapture_v2(captured.raw, mode));
        let freed = cu!(d, cuMemFree_v2(things.plain)) == CUresult::SUCCESS;
        let pooled = cu!(d, cuMemFreeAsync(things.block, things.stream.raw)) == CUresult::SUCCESS;
        let mut graph = CUgraph::NULL;
        case.code(format!("{name}: end"), cu!(d, cuStreamEndCapture(captured.raw, &mut graph)));
        if !freed {
            let bytes = crate::fixture::read(d, things.plain, BYTES)?;
            case.expect_that(&format!("{name}: a refused cuMemFree left the block"), bytes == [7; BYTES]);
            case.expect_ok(&format!("{name}: cuMemFree then"), cu!(d, cuMemFree_v2(things.plain)));
        }
        if !pooled {
            let code = cu!(d, cuMemFreeAsync(things.block, things.stream.raw));
            case.expect_ok(&format!("{name}: cuMemFreeAsync then"), code);
        }
        let memory = Memory::new(d, BYTES)?;
        case.expect_ok(&format!("{name}: memset"), cu!(d, cuMemsetD8_v2(memory.address, 1, BYTES)));
        synchronize(d, things.stream.raw)?;
    }
    Ok(())
}

/// If a stream is destroyed during its capture, the capture ends: it does not forbid later calls
/// for ever.
pub(super) fn captured_stream_destroyed(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let captured = Stream::non_blocking(d)?;
    must!(d, cuStreamBeginCapture_v2(captured.raw, CU_STREAM_CAPTURE_MODE_GLOBAL));
    let mut address = 0;
    case.expect_ok("allocation in the capture", cu!(d, cuMemAllocAsync(&mut address, BYTES, captured.raw)));
    case.code("destroy", cu!(d, cuStreamDestroy_v2(captured.raw)));
    std::mem::forget(captured);
    let code = cu!(d, cuMemAlloc_v2(&mut address, BYTES));
    case.code("cuMemAlloc afterwards", code);
    case.code("cuCtxSynchronize afterwards", cu!(d, cuCtxSynchronize()));
    Ok(())
}
