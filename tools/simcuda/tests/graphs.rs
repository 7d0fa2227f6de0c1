//! Hazard (stream order): captured calls run during the capture, lose their order, or an invalid
//! capture succeeds.

mod common;

use common::*;

const GLOBAL: u32 = CU_STREAM_CAPTURE_MODE_GLOBAL;
const RELAXED: u32 = CU_STREAM_CAPTURE_MODE_RELAXED;
const NONE: *mut std::ffi::c_void = std::ptr::null_mut();

fn finish(stream: CUstream) -> CUgraph {
    let mut graph = CUgraph::NULL;
    ok!(cuStreamEndCapture(stream, &raw mut graph));
    graph
}

fn executable(graph: CUgraph) -> CUgraphExec {
    let mut exec = CUgraphExec::NULL;
    ok!(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
    exec
}

fn nodes(graph: CUgraph) -> usize {
    let mut count = 0;
    ok!(cuGraphGetNodes(graph, std::ptr::null_mut(), &raw mut count));
    count
}

#[test]
fn captured_work_runs_at_launch_and_every_launch() {
    start(&[]);
    let (stream, source, block) = (stream(CU_STREAM_NON_BLOCKING), flag(), allocate(8));
    upload(block, &[1, 1]);
    ok!(cuStreamBeginCapture_v2(stream, GLOBAL));
    ok!(cuMemcpyHtoDAsync_v2(block, source.cast(), 4, stream));
    ok!(cuMemcpyDtoDAsync_v2(block + 4, block, 4, stream));
    let graph = finish(stream);
    assert_eq!((nodes(graph), download(block, 2)), (2, vec![1, 1]));
    let exec = executable(graph);
    ok!(cuGraphDestroy(graph));
    for value in [5, 6] {
        set(source, value);
        ok!(cuGraphLaunch(exec, stream));
        ok!(cuStreamSynchronize(stream));
        assert_eq!(download(block, 2), [value, value]);
    }
    ok!(cuGraphExecDestroy(exec));
    fails!(INVALID_VALUE, cuGraphLaunch(exec, stream));
}

#[test]
fn a_stream_joins_by_event_and_must_join_back() {
    start(&[]);
    let (first, second) = (stream(CU_STREAM_NON_BLOCKING), stream(CU_STREAM_NON_BLOCKING));
    let (fork, join, block) = (event(), event(), allocate(8));
    let fork_work = || {
        ok!(cuStreamBeginCapture_v2(first, GLOBAL));
        ok!(cuMemsetD32Async(block, 1, 1, first));
        ok!(cuEventRecord(fork, first));
        ok!(cuStreamWaitEvent(second, fork, 0));
        ok!(cuMemcpyDtoDAsync_v2(block + 4, block, 4, second));
    };
    fork_work();
    let mut graph = CUgraph(1);
    fails!(STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(first, &raw mut graph));
    assert!(graph.is_null());
    let mut status = 9;
    ok!(cuStreamIsCapturing(second, &raw mut status));
    assert_eq!(status, CU_STREAM_CAPTURE_STATUS_NONE);
    fork_work();
    fails!(STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(second, &raw mut graph));
    ok!(cuEventRecord(join, second));
    ok!(cuStreamWaitEvent(first, join, 0));
    let exec = executable(finish(first));
    ok!(cuGraphLaunch(exec, first));
    ok!(cuStreamSynchronize(first));
    assert_eq!(download(block, 2), [1, 1]);
}

#[test]
fn what_would_act_at_once_ends_the_capture() {
    start(&[]);
    let (stream, mut address, mut graph) = (stream(CU_STREAM_NON_BLOCKING), 0, CUgraph::NULL);
    ok!(cuStreamBeginCapture_v2(stream, GLOBAL));
    fails!(STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2(&raw mut address, 16));
    fails!(STREAM_CAPTURE_INVALIDATED, cuMemsetD8Async(0x1000, 0, 0, stream));
    fails!(STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &raw mut graph));
    ok!(cuStreamBeginCapture_v2(stream, RELAXED));
    ok!(cuMemAlloc_v2(&raw mut address, 16));
    fails!(STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(stream));
    fails!(STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &raw mut graph));
}

#[test]
fn a_thread_may_relax_what_captures_forbid_it() {
    start(&[]);
    let (stream, mut address, mut mode) = (stream(CU_STREAM_NON_BLOCKING), 0, RELAXED);
    ok!(cuStreamBeginCapture_v2(stream, GLOBAL));
    ok!(cuThreadExchangeStreamCaptureMode(&raw mut mode));
    assert_eq!(mode, GLOBAL);
    ok!(cuMemAlloc_v2(&raw mut address, 16));
    ok!(cuThreadExchangeStreamCaptureMode(&raw mut mode));
    finish(stream);
}

#[test]
fn the_legacy_stream_does_not_mix_with_a_captured_blocking_one() {
    start(&[]);
    let (stream, block, mut graph) = (stream(CU_STREAM_DEFAULT), allocate(4), CUgraph::NULL);
    ok!(cuStreamBeginCapture_v2(stream, RELAXED));
    fails!(STREAM_CAPTURE_IMPLICIT, cuMemsetD32_v2(block, 1, 1));
    fails!(STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &raw mut graph));
    fails!(STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(CUstream::LEGACY, RELAXED));
}

/// A recapture gives a graph's nodes other work, and keeps the graph and its memory. One of another
/// form ends with an error.
#[test]
fn a_graph_is_captured_again() {
    start(&[]);
    let (stream, out, mut graph) = (stream(CU_STREAM_NON_BLOCKING), allocate(4), CUgraph::NULL);
    let record = |value, is_longer| {
        let mut inner = 0;
        ok!(cuMemAllocAsync(&raw mut inner, UNIT, stream));
        ok!(cuMemsetD32Async(inner, value, 1, stream));
        ok!(cuMemcpyDtoDAsync_v2(out, inner, 4, stream));
        ok!(cuMemFreeAsync(inner, stream));
        if is_longer {
            fails!(GRAPH_RECAPTURE_FAILURE, cuMemsetD32Async(out, 9, 1, stream));
        }
        inner
    };
    ok!(cuStreamBeginCapture_v2(stream, GLOBAL));
    let first = record(3, false);
    let made = finish(stream);
    fails!(INVALID_VALUE, cuStreamBeginRecaptureToGraph(stream, GLOBAL, CUgraph(1), NONE, NONE));
    ok!(cuStreamBeginRecaptureToGraph(stream, GLOBAL, made, NONE, NONE));
    assert_eq!(record(5, false), first, "the block of the node");
    assert_eq!((finish(stream), nodes(made)), (made, 4));
    let exec = executable(made);
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(download(out, 1), [5]);
    ok!(cuStreamBeginRecaptureToGraph(stream, GLOBAL, made, NONE, NONE));
    fails!(GRAPH_RECAPTURE_FAILURE, cuStreamEndCapture(stream, &raw mut graph));
    ok!(cuStreamBeginRecaptureToGraph(stream, GLOBAL, made, NONE, NONE));
    record(6, true);
    fails!(STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &raw mut graph));
    ok!(cuStreamBeginRecaptureToGraph(stream, GLOBAL, made, NONE, NONE));
    fails!(GRAPH_RECAPTURE_FAILURE, cuMemsetD32Async(out, 9, 1, stream));
    fails!(STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(stream, &raw mut graph));
}

#[test]
fn a_graphs_memory_lives_as_long_as_it_can_run() {
    start(&[]);
    let (before, stream) = (free_memory(), stream(CU_STREAM_NON_BLOCKING));
    let mut inner = 0;
    ok!(cuStreamBeginCapture_v2(stream, GLOBAL));
    ok!(cuMemAllocAsync(&raw mut inner, UNIT, stream));
    ok!(cuMemsetD32Async(inner, 3, 4, stream));
    ok!(cuMemFreeAsync(inner, stream));
    let graph = finish(stream);
    let exec = executable(graph);
    ok!(cuGraphDestroy(graph));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(free_memory(), before - UNIT);
    ok!(cuGraphExecDestroy(exec));
    assert_eq!(free_memory(), before);
}

#[test]
fn nodes_run_behind_what_they_depend_on() {
    start(&[]);
    let (block, stream) = (allocate(8), stream(CU_STREAM_NON_BLOCKING));
    let (mut graph, mut copy, mut set) = (CUgraph::NULL, CUgraphNode::NULL, CUgraphNode::NULL);
    ok!(cuGraphCreate(&raw mut graph, 0));
    // SAFETY: a C structure of numbers and pointers.
    let mut params: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (params.srcMemoryType, params.srcDevice) = (CU_MEMORYTYPE_DEVICE, block);
    (params.dstMemoryType, params.dstDevice) = (CU_MEMORYTYPE_DEVICE, block + 4);
    (params.WidthInBytes, params.Height, params.Depth) = (4, 1, 1);
    let fill =
        CUDA_MEMSET_NODE_PARAMS { dst: block, pitch: 0, value: 21, elementSize: 4, width: 1, height: 1 };
    // Added in the wrong order, then corrected by an edge.
    ok!(cuGraphAddMemcpyNode(&raw mut copy, graph, std::ptr::null(), 0, &raw const params, CUcontext::NULL));
    ok!(cuGraphAddMemsetNode(&raw mut set, graph, std::ptr::null(), 0, &raw const fill, CUcontext::NULL));
    ok!(cuGraphAddDependencies(graph, &raw const set, &raw const copy, 1));
    fails!(INVALID_VALUE, cuGraphAddDependencies(graph, &raw const set, &raw const copy, 1));
    ok!(cuGraphLaunch(executable(graph), stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(download(block, 2), [21, 21]);
    ok!(cuGraphAddDependencies(graph, &raw const copy, &raw const set, 1));
    let mut exec = CUgraphExec::NULL;
    fails!(INVALID_VALUE, cuGraphInstantiateWithFlags(&raw mut exec, graph, 0));
}

#[test]
fn a_captured_kernel_keeps_its_arguments() {
    start(&[]);
    let (block, stream) = (allocate(16), stream(CU_STREAM_NON_BLOCKING));
    let function = kernel("wm_fill_u32");
    ok!(cuStreamBeginCapture_v2(stream, RELAXED));
    let (mut address, mut count, mut value) = (block, 4_u64, 13_u32);
    let launched = launch(function, stream, &mut [at(&mut address), at(&mut count), at(&mut value)]);
    assert_eq!(launched, CUresult::SUCCESS);
    (address, count, value) = (0, 0, 0);
    let exec = executable(finish(stream));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!((download(block, 4), address, count, value), (vec![13; 4], 0, 0, 0));
}

fn straight(from: CUdeviceptr, to: CUdeviceptr, bytes: usize) -> CUDA_MEMCPY3D {
    // SAFETY: numbers, null handles and null pointers are all zeroes.
    let mut copy: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_DEVICE, from);
    (copy.dstMemoryType, copy.dstDevice) = (CU_MEMORYTYPE_DEVICE, to);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (bytes, 1, 1);
    copy
}

/// Mapped memory has no context that a description without one could use: other mapped memory is
/// then refused.
#[test]
fn a_ready_copy_is_changed_to_memory_of_its_kind() {
    let here = start(&[]);
    let ((first, _), (second, _), target) = (mapped(UNIT), mapped(UNIT), allocate(UNIT));
    upload(second, &[7]);
    let (mut graph, mut node, mut ready) = (CUgraph::NULL, CUgraphNode::NULL, CUgraphExec::NULL);
    ok!(cuGraphCreate(&raw mut graph, 0));
    let (old, new) = (straight(first, target, UNIT), straight(second, target, UNIT));
    ok!(cuGraphAddMemcpyNode(&raw mut node, graph, std::ptr::null(), 0, &raw const old, CUcontext::NULL));
    ok!(cuGraphInstantiateWithFlags(&raw mut ready, graph, 0));
    fails!(INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(ready, node, &raw const new, CUcontext::NULL));
    let linear = straight(allocate(UNIT), target, UNIT);
    fails!(INVALID_VALUE, cuGraphExecMemcpyNodeSetParams(ready, node, &raw const linear, here));
    ok!(cuGraphExecMemcpyNodeSetParams(ready, node, &raw const new, here));
    ok!(cuGraphLaunch(ready, CUstream::NULL));
    assert_eq!(download(target, 1), [7]);
    let mut told = old;
    ok!(cuGraphMemcpyNodeGetParams(node, &raw mut told));
    assert_eq!(told.srcDevice, first, "the graph's own node is as it was");
}
