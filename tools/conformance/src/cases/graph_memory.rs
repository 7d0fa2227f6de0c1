//! Memory in graphs: nodes that a program adds, memory that a graph uses and does not own, and its
//! accounts.
//!
//! Memory of nodes is the driver's. Other memory is used by its address, so a replay after any
//! number of other allocations must find the same bytes there.

use std::ptr::{null, null_mut};

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{Kernels, Memory, Primary, Stream, alloc_async, pattern, read, synchronize, write};
use crate::{cu, must, supported};

const BYTES: usize = 256 << 10;
const WORDS: u64 = BYTES as u64 / 4;

fn empty(driver: &'static Driver) -> Verdict<CUgraph> {
    let mut graph = CUgraph::NULL;
    must!(driver, cuGraphCreate(&mut graph, 0));
    Ok(graph)
}

fn instantiate(driver: &'static Driver, graph: CUgraph, flags: u64) -> Verdict<CUgraphExec> {
    let mut ready = CUgraphExec::NULL;
    must!(driver, cuGraphInstantiateWithFlags(&mut ready, graph, flags));
    Ok(ready)
}

/// The parameters of an allocation node on device 0.
fn wish(bytes: usize) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    // SAFETY: numbers and null pointers are all zeroes.
    let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    params.bytesize = bytes;
    params
}

fn memset(address: CUdeviceptr, byte: u32) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS { dst: address, pitch: 0, value: byte, elementSize: 1, width: BYTES, height: 1 }
}

fn straight(from: CUdeviceptr, to: CUdeviceptr) -> CUDA_MEMCPY3D {
    // SAFETY: numbers, null handles and null pointers are all zeroes.
    let mut copy: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_DEVICE, from);
    (copy.dstMemoryType, copy.dstDevice) = (CU_MEMORYTYPE_DEVICE, to);
    (copy.srcPitch, copy.dstPitch) = (BYTES, BYTES);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (BYTES, 1, 1);
    copy
}

/// Allocate, set, copy out, free: four nodes in a row.
pub(super) fn nodes(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (stream, out) = (Stream::non_blocking(d)?, Memory::holding(d, &vec![0; BYTES])?);
    let (graph, mut params) = (empty(d)?, wish(BYTES));
    let [mut give, mut set, mut copy, mut take] = [CUgraphNode::NULL; 4];
    supported!(d, cuGraphAddMemAllocNode(&mut give, graph, null(), 0, (&raw mut params).cast()));
    case.expect_that("the node names an address", params.dptr != 0);
    let shape = memset(params.dptr, 6);
    must!(d, cuGraphAddMemsetNode(&mut set, graph, &give, 1, &shape, primary.context));
    let shape = straight(params.dptr, out.address);
    must!(d, cuGraphAddMemcpyNode(&mut copy, graph, &set, 1, &shape, primary.context));
    case.expect_ok("free node", cu!(d, cuGraphAddMemFreeNode(&mut take, graph, &copy, 1, params.dptr)));
    let mut told = wish(0);
    must!(d, cuGraphMemAllocNodeGetParams(give, (&raw mut told).cast()));
    case.expect_that("the node tells its memory", told.dptr == params.dptr && told.bytesize == BYTES);
    let mut freed = 0;
    must!(d, cuGraphMemFreeNodeGetParams(take, &mut freed));
    case.expect_that("the free node tells its memory", freed == params.dptr);
    let ready = instantiate(d, graph, 0)?;
    for round in 0..3 {
        must!(d, cuMemsetD8_v2(out.address, 0, BYTES));
        must!(d, cuCtxSynchronize());
        let _others = (0..4).map(|i| Memory::new(d, (i + 1) << 20)).collect::<Verdict<Vec<_>>>()?;
        case.expect_ok(&format!("launch {round}"), cu!(d, cuGraphLaunch(ready, stream.raw)));
        synchronize(d, stream.raw)?;
        case.expect_that(&format!("bytes of launch {round}"), out.read()? == vec![6; BYTES]);
    }
    must!(d, cuGraphExecDestroy(ready));
    must!(d, cuGraphDestroy(graph));
    Ok(())
}

pub(super) fn node_arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (graph, mut node, mut params) = (empty(d)?, CUgraphNode::NULL, wish(BYTES));
    supported!(d, cuGraphAddMemAllocNode(&mut node, graph, null(), 0, (&raw mut params).cast()));
    let mut other = CUgraphNode::NULL;
    let code = cu!(d, cuGraphAddMemAllocNode(&mut other, graph, null(), 0, null_mut()));
    case.expect_code("null", code, CUresult::INVALID_VALUE);
    let memory = Memory::holding(d, &pattern(BYTES, 1))?;
    let code = cu!(d, cuGraphAddMemFreeNode(&mut other, graph, &node, 1, memory.address));
    case.expect_code("free node for cuMemAlloc memory", code, CUresult::INVALID_VALUE);
    let stream = Stream::non_blocking(d)?;
    let ordered = alloc_async(d, BYTES, stream.raw)?;
    synchronize(d, stream.raw)?;
    let code = cu!(d, cuGraphAddMemFreeNode(&mut other, graph, &node, 1, ordered));
    case.expect_code("free node for pool memory", code, CUresult::INVALID_VALUE);
    case.expect_that("the memory is still there", memory.read()? == pattern(BYTES, 1));
    case.expect_ok("free of pool memory", cu!(d, cuMemFreeAsync(ordered, stream.raw)));
    must!(d, cuGraphDestroy(graph));
    Ok(())
}

/// A graph that uses earlier memory, launched again and again while other memory is allocated and
/// freed.
pub(super) fn replay_after_other_allocations(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (kernels, stream) = (Kernels::load(d)?, Stream::non_blocking(d)?);
    let (source, target) = (Memory::new(d, BYTES)?, Memory::new(d, BYTES)?);
    let ordered = alloc_async(d, BYTES, stream.raw)?;
    kernels.copy(stream.raw, target.address, source.address, WORDS)?;
    synchronize(d, stream.raw)?;
    must!(d, cuStreamBeginCapture_v2(stream.raw, CU_STREAM_CAPTURE_MODE_GLOBAL));
    kernels.copy(stream.raw, ordered, source.address, WORDS)?;
    must!(d, cuMemcpyDtoDAsync_v2(target.address, ordered, BYTES, stream.raw));
    let mut graph = CUgraph::NULL;
    must!(d, cuStreamEndCapture(stream.raw, &mut graph));
    let ready = instantiate(d, graph, 0)?;
    let kept = (0..3).map(|i| Memory::holding(d, &pattern(BYTES, 50 + i))).collect::<Verdict<Vec<_>>>()?;
    for round in 0..8_u64 {
        let churn = (0..6)
            .map(|i| Memory::new(d, (1 + (round as usize + i) % 5) << 19))
            .collect::<Verdict<Vec<_>>>()?;
        let other = alloc_async(d, BYTES * 3, stream.raw)?;
        must!(d, cuMemsetD8Async(other, 0xEE, BYTES * 3, stream.raw));
        must!(d, cuMemFreeAsync(other, stream.raw));
        drop(churn);
        write(d, source.address, &pattern(BYTES, round))?;
        must!(d, cuGraphLaunch(ready, stream.raw));
        synchronize(d, stream.raw)?;
        let same = target.read()? == pattern(BYTES, round);
        case.expect(same, format!("launch {round} copied other bytes"));
    }
    let same = kept.iter().zip(50..).map(|(memory, seed)| Ok(memory.read()? == pattern(BYTES, seed)));
    let same = same.collect::<Verdict<Vec<bool>>>()?;
    case.expect_that("memory from after the capture is untouched", same.iter().all(|same| *same));
    must!(d, cuGraphExecDestroy(ready));
    must!(d, cuGraphDestroy(graph));
    must!(d, cuMemFreeAsync(ordered, stream.raw));
    Ok(())
}

/// Memory that a captured allocation left alive is freed outside of the graph.
pub(super) fn outlives_its_launch(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    must!(d, cuStreamBeginCapture_v2(stream.raw, CU_STREAM_CAPTURE_MODE_GLOBAL));
    let mut address = 0;
    must!(d, cuMemAllocAsync(&mut address, BYTES, stream.raw));
    must!(d, cuMemsetD8Async(address, 3, BYTES, stream.raw));
    let mut graph = CUgraph::NULL;
    must!(d, cuStreamEndCapture(stream.raw, &mut graph));
    let ready = instantiate(d, graph, 0)?;
    must!(d, cuGraphLaunch(ready, stream.raw));
    synchronize(d, stream.raw)?;
    case.expect_that("the memory holds what the graph wrote", read(d, address, BYTES)? == vec![3; BYTES]);
    let mut ordinal = -1_i32;
    let out = (&raw mut ordinal).cast();
    case.expect_ok("ask", cu!(d, cuPointerGetAttribute(out, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address)));
    case.expect_eq("its device", ordinal, 0);
    let code = cu!(d, cuMemFreeAsync(address, stream.raw));
    if code == CUresult::INVALID_VALUE {
        // The simulated driver keeps graph memory until the graph ends.
        return Err(crate::case::Halt::Skipped(
            "needs graph memory that can be freed outside of its graph".into(),
        ));
    }
    case.expect_ok("free outside of the graph", code);
    case.expect_ok("launch again", cu!(d, cuGraphLaunch(ready, stream.raw)));
    synchronize(d, stream.raw)?;
    case.expect_ok("cuMemFree of it", cu!(d, cuMemFree_v2(address)));
    must!(d, cuGraphExecDestroy(ready));
    must!(d, cuGraphDestroy(graph));
    Ok(())
}

pub(super) fn accounts(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let mut bytes = u64::MAX;
    let place = (&raw mut bytes).cast();
    supported!(d, cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, place));
    case.expect_eq("used at first", bytes, 0);
    let _memory = Memory::new(d, 8 << 20)?;
    must!(d, cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, place));
    case.expect_eq("reserved, beside memory that is not a graph's", bytes, 0);
    let mut zero = 0_u64;
    let place = (&raw mut zero).cast();
    let code = cu!(d, cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, place));
    case.expect_ok("reset the mark", code);
    case.expect_ok("trim", cu!(d, cuDeviceGraphMemTrim(0)));
    Ok(())
}

/// Nodes of an executable graph are changed to other memory.
pub(super) fn changed_nodes(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let (first, second) = (Memory::holding(d, &vec![0; BYTES])?, Memory::holding(d, &vec![0; BYTES])?);
    let (graph, mut set) = (empty(d)?, CUgraphNode::NULL);
    let shape = memset(first.address, 1);
    must!(d, cuGraphAddMemsetNode(&mut set, graph, null(), 0, &shape, primary.context));
    let ready = instantiate(d, graph, 0)?;
    let shape = memset(second.address, 2);
    supported!(d, cuGraphExecMemsetNodeSetParams(ready, set, &shape, primary.context));
    must!(d, cuGraphLaunch(ready, stream.raw));
    synchronize(d, stream.raw)?;
    case.expect_that("the first memory is left alone", first.read()? == vec![0; BYTES]);
    case.expect_that("the second is set", second.read()? == vec![2; BYTES]);
    must!(d, cuGraphExecDestroy(ready));
    must!(d, cuGraphDestroy(graph));
    Ok(())
}
