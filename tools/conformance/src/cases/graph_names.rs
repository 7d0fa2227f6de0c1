//! Every name of the calls that capture, make and update graphs: a program uses that of its CUDA
//! version, and the memory in the graph is the same.

use std::ptr::{null, null_mut};

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::driver::Driver;
use crate::fixture::{Memory, Primary, Stream, synchronize};
use crate::{cu, must};

const BYTES: usize = 64 << 10;

/// A graph that sets memory to a byte.
fn setting(driver: &'static Driver, context: CUcontext, address: CUdeviceptr, byte: u32) -> Verdict<CUgraph> {
    let (mut graph, mut node) = (CUgraph::NULL, CUgraphNode::NULL);
    let value = byte;
    let shape =
        CUDA_MEMSET_NODE_PARAMS { dst: address, pitch: 0, value, elementSize: 1, width: BYTES, height: 1 };
    must!(driver, cuGraphCreate(&mut graph, 0));
    must!(driver, cuGraphAddMemsetNode(&mut node, graph, null(), 0, &shape, context));
    Ok(graph)
}

/// Launches, waits and destroys; the memory then holds the byte.
fn run(case: &mut Case, name: &str, ready: CUgraphExec, memory: &Memory, byte: u8) -> Verdict {
    let d = case.driver;
    let stream = Stream::non_blocking(d)?;
    case.expect_ok(&format!("{name}: upload"), cu!(d, cuGraphUpload(ready, stream.raw)));
    case.expect_ok(&format!("{name}: launch"), cu!(d, cuGraphLaunch(ready, stream.raw)));
    synchronize(d, stream.raw)?;
    case.expect_that(&format!("{name}: bytes"), memory.read()? == vec![byte; BYTES]);
    must!(d, cuGraphExecDestroy(ready));
    Ok(())
}

pub(super) fn instantiations(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let memory = Memory::new(d, BYTES)?;
    for (byte, name) in [(1, "first"), (2, "second"), (3, "with flags"), (4, "with parameters")] {
        let graph = setting(d, primary.context, memory.address, byte)?;
        let (mut ready, mut node) = (CUgraphExec::NULL, CUgraphNode::NULL);
        let mut log = [0; 64];
        // `CUDA_GRAPH_INSTANTIATE_PARAMS`: flags, stream, node at fault, result.
        let mut params = [0_u64; 4];
        let code = match name {
            "first" => cu!(d, cuGraphInstantiate(&mut ready, graph, &mut node, log.as_mut_ptr(), 64)),
            "second" => cu!(d, cuGraphInstantiate_v2(&mut ready, graph, &mut node, log.as_mut_ptr(), 64)),
            "with flags" => cu!(d, cuGraphInstantiateWithFlags(&mut ready, graph, 0)),
            _ => cu!(d, cuGraphInstantiateWithParams(&mut ready, graph, params.as_mut_ptr().cast())),
        };
        case.expect_ok(&format!("{name}: instantiate"), code);
        run(case, name, ready, &memory, byte as u8)?;
        must!(d, cuGraphDestroy(graph));
    }
    Ok(())
}

/// An executable graph is updated from another graph with other memory.
pub(super) fn update(case: &mut Case) -> Verdict {
    let d = case.driver;
    let primary = Primary::new(d)?;
    let (first, second) = (Memory::holding(d, &[0; BYTES])?, Memory::holding(d, &[0; BYTES])?);
    let old = setting(d, primary.context, first.address, 1)?;
    let new = setting(d, primary.context, second.address, 2)?;
    let mut ready = CUgraphExec::NULL;
    must!(d, cuGraphInstantiateWithFlags(&mut ready, old, 0));
    // `CUgraphExecUpdateResultInfo`: result, and the nodes at fault.
    let mut outcome = [u64::MAX; 3];
    case.expect_ok("update", cu!(d, cuGraphExecUpdate_v2(ready, new, outcome.as_mut_ptr().cast())));
    run(case, "updated", ready, &second, 2)?;
    case.expect_that("the first memory is left alone", first.read()? == vec![0; BYTES]);
    must!(d, cuGraphDestroy(old));
    must!(d, cuGraphDestroy(new));
    Ok(())
}

pub(super) fn captures(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (stream, memory) = (Stream::non_blocking(d)?, Memory::new(d, BYTES)?);
    for (byte, name) in [(1, "first"), (2, "second"), (3, "into a graph")] {
        let (mut graph, mode) = (CUgraph::NULL, CU_STREAM_CAPTURE_MODE_GLOBAL);
        let code = match name {
            "first" => cu!(d, cuStreamBeginCapture(stream.raw)),
            "second" => cu!(d, cuStreamBeginCapture_v2(stream.raw, mode)),
            _ => {
                must!(d, cuGraphCreate(&mut graph, 0));
                cu!(d, cuStreamBeginCaptureToGraph(stream.raw, graph, null(), null(), 0, mode))
            }
        };
        case.expect_ok(&format!("{name}: begin"), code);
        must!(d, cuMemsetD8Async(memory.address, byte, BYTES, stream.raw));
        case.expect_ok(&format!("{name}: end"), cu!(d, cuStreamEndCapture(stream.raw, &mut graph)));
        let mut ready = CUgraphExec::NULL;
        must!(d, cuGraphInstantiate_v2(&mut ready, graph, null_mut(), null_mut(), 0));
        run(case, name, ready, &memory, byte)?;
        must!(d, cuGraphDestroy(graph));
    }
    Ok(())
}

/// A graph is captured again: its nodes keep their memory and get other parameters.
pub(super) fn recapture(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (stream, memory) = (Stream::non_blocking(d)?, Memory::new(d, BYTES)?);
    let record = |byte| {
        let mut inner = 0;
        must!(d, cuMemAllocAsync(&mut inner, BYTES, stream.raw));
        must!(d, cuMemsetD8Async(inner, byte, BYTES, stream.raw));
        must!(d, cuMemcpyDtoDAsync_v2(memory.address, inner, BYTES, stream.raw));
        must!(d, cuMemFreeAsync(inner, stream.raw));
        Ok(inner)
    };
    let (mut graph, mut again, mode) = (CUgraph::NULL, CUgraph::NULL, CU_STREAM_CAPTURE_MODE_GLOBAL);
    must!(d, cuStreamBeginCapture_v2(stream.raw, mode));
    let first = record(1)?;
    must!(d, cuStreamEndCapture(stream.raw, &mut graph));
    let none = null_mut();
    case.expect_ok("begin", cu!(d, cuStreamBeginRecaptureToGraph(stream.raw, mode, graph, none, none)));
    let second = record(2)?;
    case.expect_that("the node keeps its memory", first == second);
    case.expect_ok("end", cu!(d, cuStreamEndCapture(stream.raw, &mut again)));
    case.expect_that("it is the same graph", graph == again);
    let mut ready = CUgraphExec::NULL;
    must!(d, cuGraphInstantiateWithFlags(&mut ready, graph, 0));
    run(case, "captured again", ready, &memory, 2)?;
    must!(d, cuGraphDestroy(graph));
    Ok(())
}

/// A capture for a graphics interface is refused without one: an ordinary capture follows.
pub(super) fn graphics(case: &mut Case) -> Verdict {
    let d = case.driver;
    let _primary = Primary::new(d)?;
    let (stream, memory) = (Stream::non_blocking(d)?, Memory::new(d, BYTES)?);
    let mut parameters = [0_u64; 32];
    let begin = cu!(d, cuStreamBeginCaptureToCig(stream.raw, parameters.as_mut_ptr().cast()));
    case.expect_that("begin", begin != CUresult::SUCCESS);
    case.expect_that("end", cu!(d, cuStreamEndCaptureToCig(stream.raw)) != CUresult::SUCCESS);
    let (mut graph, mut ready, mode) = (CUgraph::NULL, CUgraphExec::NULL, CU_STREAM_CAPTURE_MODE_GLOBAL);
    case.expect_ok("an ordinary begin", cu!(d, cuStreamBeginCapture_v2(stream.raw, mode)));
    must!(d, cuMemsetD8Async(memory.address, 3, BYTES, stream.raw));
    case.expect_ok("an ordinary end", cu!(d, cuStreamEndCapture(stream.raw, &mut graph)));
    must!(d, cuGraphInstantiateWithFlags(&mut ready, graph, 0));
    run(case, "after", ready, &memory, 3)?;
    must!(d, cuGraphDestroy(graph));
    Ok(())
}
