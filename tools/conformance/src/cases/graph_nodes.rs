//! Nodes that a program adds itself, with addresses of served memory: kernels and copies, and nodes
//! whose parameters are queried and changed.

use std::ptr::{null, null_mut};

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{Kernels, Memory, Primary, Stream, pattern, pointers, synchronize};
use crate::{cu, must, supported};

const BYTES: usize = 1 << 20;

/// A graph with a node that fills memory with a word.
struct Filling {
    graph: CUgraph,
    node: CUgraphNode,
}

/// The arguments' array must live until the node is made.
fn launch_of(kernels: &Kernels, arguments: &mut [*mut std::ffi::c_void]) -> Verdict<CUDA_KERNEL_NODE_PARAMS> {
    // SAFETY: numbers, null handles and null pointers are all zeroes.
    let mut params: CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
    params.func = kernels.function(c"wm_fill_u32")?;
    (params.gridDimX, params.gridDimY, params.gridDimZ) = (4, 1, 1);
    (params.blockDimX, params.blockDimY, params.blockDimZ) = (64, 1, 1);
    params.kernelParams = arguments.as_mut_ptr();
    Ok(params)
}

impl Filling {
    fn new(driver: &'static Driver, kernels: &Kernels, address: CUdeviceptr, word: u32) -> Verdict<Self> {
        let (mut graph, mut node) = (CUgraph::NULL, CUgraphNode::NULL);
        must!(driver, cuGraphCreate(&mut graph, 0));
        let values = [address, BYTES as u64 / 4, word.into()];
        let mut arguments = pointers(&values);
        let params = launch_of(kernels, &mut arguments)?;
        must!(driver, cuGraphAddKernelNode_v2(&mut node, graph, null(), 0, &params));
        Ok(Self { graph, node })
    }
}

fn instantiate(driver: &'static Driver, graph: CUgraph) -> Verdict<CUgraphExec> {
    let mut ready = CUgraphExec::NULL;
    must!(driver, cuGraphInstantiateWithFlags(&mut ready, graph, 0));
    Ok(ready)
}

fn straight(from: CUdeviceptr, to: CUdeviceptr) -> CUDA_MEMCPY3D {
    // SAFETY: numbers, null handles and null pointers are all zeroes.
    let mut copy: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    (copy.srcMemoryType, copy.srcDevice, copy.srcPitch) = (CU_MEMORYTYPE_DEVICE, from, BYTES);
    (copy.dstMemoryType, copy.dstDevice, copy.dstPitch) = (CU_MEMORYTYPE_DEVICE, to, BYTES);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (BYTES, 1, 1);
    copy
}

/// A kernel fills one memory, a copy moves the bytes to another.
pub(super) fn kernel_and_copy(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (kernels, stream) = (Kernels::load(d)?, Stream::non_blocking(d)?);
    let (first, second) = (Memory::holding(d, &vec![0; BYTES])?, Memory::holding(d, &vec![0; BYTES])?);
    let Filling { graph, node } = Filling::new(d, &kernels, first.address, 0x0505_0505)?;
    let mut copy = CUgraphNode::NULL;
    let shape = straight(first.address, second.address);
    must!(d, cuGraphAddMemcpyNode(&mut copy, graph, &node, 1, &shape, primary.context));
    let ready = instantiate(d, graph)?;
    let _others = (0..6).map(|i| Memory::holding(d, &pattern(BYTES, i))).collect::<Verdict<Vec<_>>>()?;
    case.expect_ok("launch", cu!(d, cuGraphLaunch(ready, stream.raw)));
    synchronize(d, stream.raw)?;
    case.expect_that("bytes", second.read()? == vec![5; BYTES]);
    must!(d, cuGraphExecDestroy(ready));
    must!(d, cuGraphDestroy(graph));
    Ok(())
}

/// Parameters of nodes are returned as they were passed, and changed to other memory.
pub(super) fn parameters(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (kernels, stream) = (Kernels::load(d)?, Stream::non_blocking(d)?);
    let (first, second) = (Memory::holding(d, &vec![0; BYTES])?, Memory::holding(d, &vec![0; BYTES])?);
    let Filling { graph, node } = Filling::new(d, &kernels, first.address, 0x0606_0606)?;
    let values = [second.address, BYTES as u64 / 4, 0x0707_0707];
    let mut arguments = pointers(&values);
    let params = launch_of(&kernels, &mut arguments)?;
    let mut told = params;
    told.kernelParams = null_mut();
    supported!(d, cuGraphKernelNodeGetParams_v2(node, &mut told));
    // SAFETY: the driver's copy of the arguments, which lives as long as the node; the first one is
    // an address.
    let address = unsafe { told.kernelParams.read().cast::<u64>().read() };
    case.expect_that("the kernel's memory comes back", address == first.address);
    case.expect_ok("other memory", cu!(d, cuGraphKernelNodeSetParams_v2(node, &params)));
    let (mut copy, shape) = (CUgraphNode::NULL, straight(second.address, first.address));
    must!(d, cuGraphAddMemcpyNode(&mut copy, graph, &node, 1, &shape, primary.context));
    let mut told = straight(0, 0);
    must!(d, cuGraphMemcpyNodeGetParams(copy, &mut told));
    case.expect_that("the copy's memory comes back", told.srcDevice == second.address);
    case.expect_ok("set a copy", cu!(d, cuGraphMemcpyNodeSetParams(copy, &shape)));
    let ready = instantiate(d, graph)?;
    let code = cu!(d, cuGraphExecMemcpyNodeSetParams(ready, copy, &shape, primary.context));
    case.expect_ok("set a copy that is ready", code);
    must!(d, cuGraphLaunch(ready, stream.raw));
    synchronize(d, stream.raw)?;
    case.expect_that("bytes", first.read()? == vec![7; BYTES]);
    must!(d, cuGraphExecDestroy(ready));
    must!(d, cuGraphDestroy(graph));
    Ok(())
}

/// A memory node by the call that adds nodes of any kind.
pub(super) fn allocation_of_any_kind(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (mut graph, mut node) = (CUgraph::NULL, CUgraphNode::NULL);
    must!(d, cuGraphCreate(&mut graph, 0));
    // `CUgraphNodeParams`: the kind (10: allocation), and from the third word on the parameters of
    // that kind: a pool of pinned memory (1) that no other process opens, on device 0, ...
    let mut params = [0_u64; 32];
    (params[0], params[2], params[3]) = (10, 1, u64::from(CU_MEM_LOCATION_TYPE_DEVICE));
    // ... and behind its properties the peers, their number, the bytes, and the resulting address.
    params[15] = BYTES as u64;
    supported!(d, cuGraphAddNode(&mut node, graph, null(), 0, params.as_mut_ptr().cast()));
    case.expect_that("the node names an address", params[16] != 0);
    let ready = instantiate(d, graph)?;
    must!(d, cuGraphLaunch(ready, CUstream::NULL));
    must!(d, cuCtxSynchronize());
    case.expect_ok("set its memory", cu!(d, cuMemsetD8_v2(params[16], 1, BYTES)));
    let code = cu!(d, cuMemFree_v2(params[16]));
    if code == CUresult::INVALID_VALUE {
        // The simulated driver keeps graph memory until the graph ends.
        return Err(crate::case::Halt::Skipped(
            "needs graph memory that can be freed outside of its graph".into(),
        ));
    }
    case.expect_ok("free", code);
    must!(d, cuGraphExecDestroy(ready));
    must!(d, cuGraphDestroy(graph));
    Ok(())
}
