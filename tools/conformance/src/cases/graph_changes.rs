//! Nodes of any kind, and their change to other memory, without a context argument: the driver uses
//! the memory's own context, which mapped memory does not have.

use std::ptr::null;

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{Primary, Stream, alloc_async, read, synchronize};
use crate::{cu, must, supported};

/// Large enough for a backing of its own.
const BYTES: usize = 48 << 20;
const PART: usize = 4096;

/// Memory filled with one byte.
fn memory(driver: &'static Driver, byte: u8) -> Verdict<CUdeviceptr> {
    let mut address = 0;
    must!(driver, cuMemAlloc_v2(&mut address, BYTES));
    must!(driver, cuMemsetD8_v2(address, byte, BYTES));
    must!(driver, cuCtxSynchronize());
    Ok(address)
}

fn straight(from: CUdeviceptr, to: CUdeviceptr) -> CUDA_MEMCPY3D {
    // SAFETY: numbers, null handles and null pointers are all zeroes.
    let mut copy: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_DEVICE, from);
    (copy.dstMemoryType, copy.dstDevice) = (CU_MEMORYTYPE_DEVICE, to);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (BYTES, 1, 1);
    copy
}

fn copy_params(copy: CUDA_MEMCPY3D) -> CUgraphNodeParams {
    let mut params = CUgraphNodeParams::empty(CU_GRAPH_NODE_TYPE_MEMCPY);
    params.body.memcpy =
        CUDA_MEMCPY_NODE_PARAMS { flags: 0, reserved: 0, copyCtx: CUcontext::NULL, copyParams: copy };
    params
}

fn memset_params(dst: CUdeviceptr, value: u32) -> CUgraphNodeParams {
    let mut params = CUgraphNodeParams::empty(CU_GRAPH_NODE_TYPE_MEMSET);
    let (pitch, width, height, ctx) = (0, BYTES, 1, CUcontext::NULL);
    params.body.memset = CUDA_MEMSET_NODE_PARAMS_v2 { dst, pitch, value, elementSize: 1, width, height, ctx };
    params
}

/// Are the beginning and the end of a memory filled with this byte?
fn is_all(driver: &'static Driver, address: CUdeviceptr, byte: u8) -> Verdict<bool> {
    let end = address + (BYTES - PART) as u64;
    Ok(read(driver, address, PART)? == [byte; PART] && read(driver, end, PART)? == [byte; PART])
}

/// A graph of one copy from the first memory to the last, and the memory to change it to.
struct Copying {
    memories: [CUdeviceptr; 3],
    graph: CUgraph,
    node: CUgraphNode,
    stream: Stream,
    _primary: Primary,
}

impl Copying {
    fn new(driver: &'static Driver) -> Verdict<Self> {
        let primary = Primary::new(driver)?;
        let memories = [memory(driver, 1)?, memory(driver, 2)?, memory(driver, 3)?];
        let (mut graph, mut node) = (CUgraph::NULL, CUgraphNode::NULL);
        must!(driver, cuGraphCreate(&mut graph, 0));
        let mut params = copy_params(straight(memories[0], memories[2]));
        supported!(driver, cuGraphAddNode(&mut node, graph, null(), 0, (&raw mut params).cast()));
        Ok(Self { memories, graph, node, stream: Stream::non_blocking(driver)?, _primary: primary })
    }

    /// The copy from the second memory.
    fn other(&self) -> CUDA_MEMCPY3D {
        straight(self.memories[1], self.memories[2])
    }

    fn ready(&self, driver: &'static Driver) -> Verdict<CUgraphExec> {
        let mut ready = CUgraphExec::NULL;
        must!(driver, cuGraphInstantiateWithFlags(&mut ready, self.graph, 0));
        Ok(ready)
    }

    /// Runs the graph; the last memory must hold the second's bytes.
    fn run(&self, case: &mut Case, ready: CUgraphExec) -> Verdict {
        let d = case.driver;
        case.expect_ok("launch", cu!(d, cuGraphLaunch(ready, self.stream.raw)));
        synchronize(d, self.stream.raw)?;
        case.expect_that("bytes", is_all(d, self.memories[2], 2)?);
        Ok(())
    }
}

pub(super) fn copy_of_any_kind(case: &mut Case) -> Verdict {
    let d = case.driver;
    let copying = Copying::new(d)?;
    let mut params = copy_params(copying.other());
    case.expect_ok("set", cu!(d, cuGraphNodeSetParams(copying.node, (&raw mut params).cast())));
    let ready = copying.ready(d)?;
    copying.run(case, ready)
}

pub(super) fn ready_copy_of_any_kind(case: &mut Case) -> Verdict {
    let d = case.driver;
    let copying = Copying::new(d)?;
    let ready = copying.ready(d)?;
    let mut params = copy_params(copying.other());
    let code = cu!(d, cuGraphExecNodeSetParams(ready, copying.node, (&raw mut params).cast()));
    case.expect_ok("set", code);
    copying.run(case, ready)
}

pub(super) fn ready_copy(case: &mut Case) -> Verdict {
    let d = case.driver;
    let copying = Copying::new(d)?;
    let ready = copying.ready(d)?;
    let code = cu!(d, cuGraphExecMemcpyNodeSetParams(ready, copying.node, &copying.other(), CUcontext::NULL));
    case.expect_ok("set", code);
    copying.run(case, ready)
}

/// From memory of a context to memory of a pool, which belongs to none: recorded.
pub(super) fn ready_copy_of_pool_memory(case: &mut Case) -> Verdict {
    let d = case.driver;
    let copying = Copying::new(d)?;
    let ready = copying.ready(d)?;
    let pooled = alloc_async(d, BYTES, CUstream::NULL)?;
    synchronize(d, CUstream::NULL)?;
    let shape = straight(pooled, copying.memories[2]);
    case.code("set", cu!(d, cuGraphExecMemcpyNodeSetParams(ready, copying.node, &shape, CUcontext::NULL)));
    Ok(())
}

/// A memset by the call that adds nodes of any kind, with data of its edges, and its change in both
/// forms.
pub(super) fn memsets(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let stream = Stream::non_blocking(d)?;
    let (first, second) = (memory(d, 1)?, memory(d, 2)?);
    let (mut graph, mut node, mut ready) = (CUgraph::NULL, CUgraphNode::NULL, CUgraphExec::NULL);
    must!(d, cuGraphCreate(&mut graph, 0));
    let mut params = memset_params(first, 5);
    supported!(d, cuGraphAddNode_v2(&mut node, graph, null(), null(), 0, (&raw mut params).cast()));
    params = memset_params(first, 6);
    case.expect_ok("set", cu!(d, cuGraphNodeSetParams(node, (&raw mut params).cast())));
    must!(d, cuGraphInstantiateWithFlags(&mut ready, graph, 0));
    must!(d, cuGraphLaunch(ready, stream.raw));
    synchronize(d, stream.raw)?;
    case.expect_that("bytes", is_all(d, first, 6)?);
    params = memset_params(second, 7);
    case.expect_ok(
        "set a ready one",
        cu!(d, cuGraphExecNodeSetParams(ready, node, (&raw mut params).cast())),
    );
    must!(d, cuGraphLaunch(ready, stream.raw));
    synchronize(d, stream.raw)?;
    case.expect_that("bytes of the other", is_all(d, second, 7)?);
    let plain =
        CUDA_MEMSET_NODE_PARAMS { dst: first, pitch: 0, value: 8, elementSize: 1, width: BYTES, height: 1 };
    let code = cu!(d, cuGraphExecMemsetNodeSetParams(ready, node, &plain, CUcontext::NULL));
    case.expect_ok("set a ready one by the call for memsets", code);
    must!(d, cuGraphLaunch(ready, stream.raw));
    synchronize(d, stream.raw)?;
    case.expect_that("bytes of the first", is_all(d, first, 8)?);
    Ok(())
}
