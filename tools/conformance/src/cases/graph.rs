//! Graphs: captured work is recorded and not executed, each launch executes it, and memory
//! allocated in it belongs to the graph.

use std::ptr::null_mut;

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{Kernels, Memory, Primary, Stream, synchronize};
use crate::{cu, must};

const BYTES: usize = 64 << 10;
const WORDS: u64 = BYTES as u64 / 4;
/// `CU_GRAPH_NODE_TYPE_MEM_ALLOC` and `CU_GRAPH_NODE_TYPE_MEM_FREE`.
const ALLOC_NODE: u32 = 10;
const FREE_NODE: u32 = 11;

fn begin(driver: &'static Driver, stream: CUstream, mode: u32) -> Verdict {
    must!(driver, cuStreamBeginCapture_v2(stream, mode));
    Ok(())
}

fn end(driver: &'static Driver, stream: CUstream) -> Verdict<CUgraph> {
    let mut graph = CUgraph::NULL;
    must!(driver, cuStreamEndCapture(stream, &mut graph));
    Ok(graph)
}

fn instantiate(driver: &'static Driver, graph: CUgraph) -> Verdict<CUgraphExec> {
    let mut ready = CUgraphExec::NULL;
    must!(driver, cuGraphInstantiateWithFlags(&mut ready, graph, 0));
    Ok(ready)
}

pub(super) fn node_types(driver: &'static Driver, graph: CUgraph) -> Verdict<Vec<u32>> {
    let mut count = 0;
    must!(driver, cuGraphGetNodes(graph, null_mut(), &mut count));
    let mut nodes = vec![CUgraphNode::NULL; count];
    must!(driver, cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
    let mut types = Vec::new();
    for node in nodes {
        let mut type_ = u32::MAX;
        must!(driver, cuGraphNodeGetType(node, &mut type_));
        types.push(type_);
    }
    types.sort_unstable();
    Ok(types)
}

pub(super) fn capture_and_replay(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, stream) = (Kernels::load(d)?, Stream::non_blocking(d)?);
    let (source, target) = (Memory::holding(d, &vec![1; BYTES])?, Memory::holding(d, &vec![2; BYTES])?);
    // A first launch loads the kernel: loading is not allowed in a capture of the global mode.
    kernels.fill(stream.raw, source.address, WORDS, 0x0101_0101)?;
    synchronize(d, stream.raw)?;
    begin(d, stream.raw, CU_STREAM_CAPTURE_MODE_GLOBAL)?;
    let mut status = u32::MAX;
    must!(d, cuStreamIsCapturing(stream.raw, &mut status));
    case.expect_eq("status in capture", status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    kernels.fill(stream.raw, source.address, WORDS, 0x0707_0707)?;
    must!(d, cuMemcpyDtoDAsync_v2(target.address, source.address, BYTES, stream.raw));
    must!(d, cuMemsetD8Async(source.address, 9, BYTES, stream.raw));
    let graph = end(d, stream.raw)?;
    must!(d, cuStreamIsCapturing(stream.raw, &mut status));
    case.expect_eq("status after", status, CU_STREAM_CAPTURE_STATUS_NONE);
    case.expect_that("captured work is not done", target.read()? == vec![2; BYTES]);
    case.expect_eq("nodes", node_types(d, graph)?, vec![0, 1, 2]);
    let ready = instantiate(d, graph)?;
    for _ in 0..3 {
        must!(d, cuMemsetD8_v2(target.address, 0, BYTES));
        must!(d, cuCtxSynchronize());
        case.expect_ok("launch", cu!(d, cuGraphLaunch(ready, stream.raw)));
        synchronize(d, stream.raw)?;
        case.expect_that("the copy is of the kernel's bytes", target.read()? == vec![7; BYTES]);
        case.expect_that("the memset comes last", source.read()? == vec![9; BYTES]);
    }
    must!(d, cuGraphExecDestroy(ready));
    must!(d, cuGraphDestroy(graph));
    Ok(())
}

pub(super) fn forked_capture(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (first, second) = (Stream::non_blocking(d)?, Stream::non_blocking(d)?);
    let (a, b) = (Memory::new(d, BYTES)?, Memory::new(d, BYTES)?);
    let (fork, join) = (crate::fixture::Event::new(d, 2)?, crate::fixture::Event::new(d, 2)?);
    begin(d, first.raw, CU_STREAM_CAPTURE_MODE_GLOBAL)?;
    must!(d, cuMemsetD8Async(a.address, 1, BYTES, first.raw));
    fork.record(first.raw)?;
    must!(d, cuStreamWaitEvent(second.raw, fork.raw, 0));
    must!(d, cuMemcpyDtoDAsync_v2(b.address, a.address, BYTES, second.raw));
    join.record(second.raw)?;
    must!(d, cuStreamWaitEvent(first.raw, join.raw, 0));
    must!(d, cuMemsetD8Async(a.address, 2, BYTES, first.raw));
    let graph = end(d, first.raw)?;
    let ready = instantiate(d, graph)?;
    must!(d, cuGraphLaunch(ready, first.raw));
    synchronize(d, first.raw)?;
    case.expect_that(
        "both branches kept their order",
        a.read()? == vec![2; BYTES] && b.read()? == vec![1; BYTES],
    );
    must!(d, cuGraphExecDestroy(ready));
    must!(d, cuGraphDestroy(graph));
    Ok(())
}

pub(super) fn pool_memory_becomes_nodes(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, stream) = (Kernels::load(d)?, Stream::non_blocking(d)?);
    let out = Memory::holding(d, &vec![0; BYTES])?;
    kernels.fill(stream.raw, out.address, WORDS, 0)?;
    synchronize(d, stream.raw)?;
    begin(d, stream.raw, CU_STREAM_CAPTURE_MODE_GLOBAL)?;
    let mut address = 0;
    case.expect_ok("cuMemAllocAsync in capture", cu!(d, cuMemAllocAsync(&mut address, BYTES, stream.raw)));
    kernels.fill(stream.raw, address, WORDS, 0x0606_0606)?;
    must!(d, cuMemcpyDtoDAsync_v2(out.address, address, BYTES, stream.raw));
    case.expect_ok("cuMemFreeAsync in capture", cu!(d, cuMemFreeAsync(address, stream.raw)));
    let graph = end(d, stream.raw)?;
    let types = node_types(d, graph)?;
    case.expect_that("there is an allocation node", types.contains(&ALLOC_NODE));
    case.expect_that("there is a free node", types.contains(&FREE_NODE));
    let ready = instantiate(d, graph)?;
    for _ in 0..3 {
        must!(d, cuGraphLaunch(ready, stream.raw));
    }
    synchronize(d, stream.raw)?;
    case.expect_that("its memory worked", out.read()? == vec![6; BYTES]);
    must!(d, cuGraphExecDestroy(ready));
    must!(d, cuGraphDestroy(graph));
    case.expect_ok("trim of graph memory", cu!(d, cuDeviceGraphMemTrim(0)));
    Ok(())
}

pub(super) fn allocation_in_relaxed_mode(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let kept = Memory::new(d, BYTES)?;
    begin(d, stream.raw, CU_STREAM_CAPTURE_MODE_RELAXED)?;
    let mut address = 0;
    case.expect_ok("cuMemAlloc", cu!(d, cuMemAlloc_v2(&mut address, 8 << 20)));
    must!(d, cuMemsetD8Async(kept.address, 3, BYTES, stream.raw));
    must!(d, cuMemsetD8Async(address, 4, 8 << 20, stream.raw));
    let graph = end(d, stream.raw)?;
    case.expect_eq("nodes", node_types(d, graph)?, vec![2, 2]);
    let ready = instantiate(d, graph)?;
    must!(d, cuGraphLaunch(ready, stream.raw));
    synchronize(d, stream.raw)?;
    case.expect_that("the graph ran on it", crate::fixture::read(d, address, 8 << 20)? == vec![4; 8 << 20]);
    must!(d, cuGraphExecDestroy(ready));
    must!(d, cuGraphDestroy(graph));
    case.expect_ok("free", cu!(d, cuMemFree_v2(address)));
    Ok(())
}

pub(super) fn allocation_in_global_mode(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    begin(d, stream.raw, CU_STREAM_CAPTURE_MODE_GLOBAL)?;
    let mut address = 0;
    case.code("cuMemAlloc", cu!(d, cuMemAlloc_v2(&mut address, 8 << 20)));
    let mut status = u32::MAX;
    case.code("status call", cu!(d, cuStreamIsCapturing(stream.raw, &mut status)));
    case.observe("status", status);
    let mut graph = CUgraph::NULL;
    case.code("end", cu!(d, cuStreamEndCapture(stream.raw, &mut graph)));
    Ok(())
}

pub(super) fn forbidden_in_capture(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    begin(d, stream.raw, CU_STREAM_CAPTURE_MODE_RELAXED)?;
    let code = cu!(d, cuStreamSynchronize(stream.raw));
    case.expect_code("synchronize", code, CUresult::STREAM_CAPTURE_UNSUPPORTED);
    let mut graph = CUgraph::NULL;
    let code = cu!(d, cuStreamEndCapture(stream.raw, &mut graph));
    case.expect_code("the capture is spoilt", code, CUresult::STREAM_CAPTURE_INVALIDATED);
    let code = cu!(d, cuStreamEndCapture(stream.raw, &mut graph));
    case.code("end without begin", code);
    case.expect_ok("the stream is well again", cu!(d, cuStreamSynchronize(stream.raw)));
    let code = cu!(d, cuStreamBeginCapture_v2(CUstream::NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
    case.expect_code("capture of the default stream", code, CUresult::STREAM_CAPTURE_UNSUPPORTED);
    Ok(())
}

pub(super) fn foreign_free_in_capture(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let before = crate::fixture::alloc_async(d, BYTES, stream.raw)?;
    synchronize(d, stream.raw)?;
    begin(d, stream.raw, CU_STREAM_CAPTURE_MODE_RELAXED)?;
    case.code("cuMemFreeAsync of memory from before", cu!(d, cuMemFreeAsync(before, stream.raw)));
    let mut graph = CUgraph::NULL;
    case.code("end", cu!(d, cuStreamEndCapture(stream.raw, &mut graph)));
    case.code("free afterwards", cu!(d, cuMemFreeAsync(before, stream.raw)));
    Ok(())
}

pub(super) fn capture_mode_of_thread(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    case.expect_ok("exchange", cu!(d, cuThreadExchangeStreamCaptureMode(&mut mode)));
    case.expect_eq("a thread starts in the global mode", mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    must!(d, cuThreadExchangeStreamCaptureMode(&mut mode));
    case.expect_eq("the mode was kept", mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    Ok(())
}
