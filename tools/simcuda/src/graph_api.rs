//! The driver's functions about graphs.

use std::ffi::{c_char, c_uint, c_ulonglong, c_void};
use std::sync::{Arc, PoisonError};

use wm_abi::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUgraph, CUgraphExec, CUgraphNode, CUresult,
    CUstream,
};

use crate::entry::{Outcome, exports, get, get_all, put, put_optional, require};
use crate::graph::{Exec, Graph, Kind, exec, graph, node};
use crate::graph_form::{self, Form};
use crate::lane::Work;
use crate::state::driver;
use crate::stream::Stream;

/// Adds a node behind the given ones.
///
/// # Safety
/// `after` is valid for reads of `count` handles, `out` null or valid for a write.
pub(crate) unsafe fn add(
    out: *mut CUgraphNode,
    into: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    form: Form,
    work: Work,
) -> Outcome {
    require(!out.is_null(), CUresult::INVALID_VALUE)?;
    // SAFETY: by contract.
    let after = unsafe { get_all(after, count)? };
    after.iter().try_for_each(|handle| node(*handle).map(drop))?;
    let handle = graph(into)?.add(form, work, after.iter().map(|handle| handle.0).collect());
    // SAFETY: by contract.
    unsafe { put(out, CUgraphNode(handle)) }
}

fn instantiate(from: CUgraph, flags: u64) -> Outcome<CUgraphExec> {
    let steps = graph(from)?.steps()?;
    let make = |_| Exec::new(steps, flags);
    Ok(CUgraphExec(driver().execs.insert(make).0))
}

fn launch(exec: &Exec, stream: &Stream) -> Outcome {
    let work = exec.steps().work();
    let mut latest = exec.latest.lock().unwrap_or_else(PoisonError::into_inner);
    let after = latest.iter().cloned().collect();
    if let Some(point) = stream.submit_after(after, Kind::GRAPH.into(), work)? {
        *latest = Some(point);
    }
    Ok(())
}

/// Writes handles to an array of `*count` elements, or with a null array only their number.
///
/// # Safety
/// `places` is null or valid for `*count` writes, `count` null or valid.
unsafe fn list(places: *mut CUgraphNode, count: *mut usize, handles: &[usize]) -> Outcome {
    // SAFETY: by contract.
    unsafe {
        let room = get(count)?;
        if places.is_null() {
            return put(count, handles.len());
        }
        for (i, handle) in handles.iter().take(room).enumerate() {
            put(places.add(i), CUgraphNode(*handle))?;
        }
        (handles.len()..room).try_for_each(|i| put(places.add(i), CUgraphNode::NULL))?;
        put(count, handles.len().min(room))
    }
}

fn link(from: &[CUgraphNode], to: &[CUgraphNode], linked: bool) -> Outcome {
    for (from, to) in from.iter().zip(to) {
        let (before, behind) = (node(*from)?, node(*to)?);
        require(before.graph == behind.graph && from != to, CUresult::INVALID_VALUE)?;
        let mut after = behind.after();
        require(after.contains(&from.0) != linked, CUresult::INVALID_VALUE)?;
        if linked { after.push(from.0) } else { after.retain(|other| *other != from.0) }
    }
    Ok(())
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct InstantiateParams {
    flags: c_ulonglong,
    upload_stream: CUstream,
    error_node: CUgraphNode,
    result: c_uint,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct HostParams {
    function: *mut c_void,
    argument: *mut c_void,
}

exports! {
    fn cuGraphCreate(phGraph: *mut CUgraph, flags: c_uint) |call| {
        require(!phGraph.is_null() && flags == 0, CUresult::INVALID_VALUE)?;
        let graph = Graph::new();
        driver().graphs.enter(graph.handle, Arc::clone(&graph));
        put(phGraph, CUgraph(graph.handle))
    }

    fn cuGraphDestroy(hGraph: CUgraph) |call| {
        driver().graphs.remove(hGraph.0).map(drop).ok_or(CUresult::INVALID_VALUE)
    }

    fn cuGraphClone(phGraphClone: *mut CUgraph, originalGraph: CUgraph) |call| {
        require(!phGraphClone.is_null(), CUresult::INVALID_VALUE)?;
        let copy = graph(originalGraph)?.copy();
        driver().graphs.enter(copy.handle, Arc::clone(&copy));
        put(phGraphClone, CUgraph(copy.handle))
    }

    fn cuGraphAddKernelNode_v2(phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, nodeParams: *const CUDA_KERNEL_NODE_PARAMS) |call| {
        let (form, work) = graph_form::launching(call, &get(nodeParams)?)?;
        add(phGraphNode, hGraph, dependencies, numDependencies, form, work)
    }

    fn cuGraphAddMemsetNode(phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, memsetParams: *const CUDA_MEMSET_NODE_PARAMS, ctx: CUcontext) |call| {
        let (form, work) = graph_form::setting(call, &get(memsetParams)?, ctx)?;
        add(phGraphNode, hGraph, dependencies, numDependencies, form, work)
    }

    fn cuGraphAddHostNode(phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, nodeParams: *const c_void) |call| {
        let p = get(nodeParams.cast::<HostParams>())?;
        require(!p.function.is_null(), CUresult::INVALID_VALUE)?;
        let work = crate::stream_api::host_work(p.function, p.argument);
        add(phGraphNode, hGraph, dependencies, numDependencies, Kind::HOST.into(), work)
    }

    fn cuGraphAddEmptyNode(phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize) |call| {
        add(phGraphNode, hGraph, dependencies, numDependencies, Kind::EMPTY.into(), Arc::new(|| Ok(())))
    }

    fn cuGraphAddChildGraphNode(phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, childGraph: CUgraph) |call| {
        let (form, work) = graph_form::child(childGraph)?;
        add(phGraphNode, hGraph, dependencies, numDependencies, form, work)
    }

    fn cuGraphAddDependencies(hGraph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, numDependencies: usize) |call| {
        graph(hGraph)?;
        link(&get_all(from, numDependencies)?, &get_all(to, numDependencies)?, true)
    }

    fn cuGraphAddDependencies_v2(hGraph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edgeData: *const c_void, numDependencies: usize) |call| {
        graph(hGraph)?;
        link(&get_all(from, numDependencies)?, &get_all(to, numDependencies)?, true)
    }

    fn cuGraphRemoveDependencies(hGraph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, numDependencies: usize) |call| {
        graph(hGraph)?;
        link(&get_all(from, numDependencies)?, &get_all(to, numDependencies)?, false)
    }

    fn cuGraphDestroyNode(hNode: CUgraphNode) |call| {
        let node = node(hNode)?;
        graph(CUgraph(node.graph))?.remove(node.handle);
        Ok(())
    }

    fn cuGraphGetNodes(hGraph: CUgraph, nodes: *mut CUgraphNode, numNodes: *mut usize) |call| {
        let handles: Vec<usize> = graph(hGraph)?.nodes().iter().map(|node| node.handle).collect();
        list(nodes, numNodes, &handles)
    }

    fn cuGraphGetRootNodes(hGraph: CUgraph, rootNodes: *mut CUgraphNode, numRootNodes: *mut usize) |call| {
        let graph = graph(hGraph)?;
        let roots: Vec<usize> = graph.nodes().iter().filter(|node| node.after().is_empty()).map(|node| node.handle).collect();
        list(rootNodes, numRootNodes, &roots)
    }

    fn cuGraphGetEdges(hGraph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, numEdges: *mut usize) |call| {
        let graph = graph(hGraph)?;
        let nodes = graph.nodes().clone();
        let edges = || nodes.iter().flat_map(|node| node.after().clone().into_iter().map(move |before| (before, node.handle)));
        let room = get(numEdges)?;
        list(from, numEdges, &edges().map(|(before, _)| before).collect::<Vec<_>>())?;
        if !to.is_null() {
            put(numEdges, room)?;
            list(to, numEdges, &edges().map(|(_, behind)| behind).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    fn cuGraphNodeGetType(hNode: CUgraphNode, type_: *mut c_uint) |call| {
        put(type_, node(hNode)?.kind.0)
    }

    fn cuGraphNodeGetDependencies(hNode: CUgraphNode, dependencies: *mut CUgraphNode, numDependencies: *mut usize) |call| {
        let after = node(hNode)?.after().clone();
        list(dependencies, numDependencies, &after)
    }

    fn cuGraphInstantiate(phGraphExec: *mut CUgraphExec, hGraph: CUgraph, phErrorNode: *mut CUgraphNode, logBuffer: *mut c_char, bufferSize: usize) |call| {
        require(!phGraphExec.is_null(), CUresult::INVALID_VALUE)?;
        put_optional(phErrorNode, CUgraphNode::NULL);
        put(phGraphExec, instantiate(hGraph, 0)?)
    }

    fn cuGraphInstantiate_v2(phGraphExec: *mut CUgraphExec, hGraph: CUgraph, phErrorNode: *mut CUgraphNode, logBuffer: *mut c_char, bufferSize: usize) |call| {
        require(!phGraphExec.is_null(), CUresult::INVALID_VALUE)?;
        put_optional(phErrorNode, CUgraphNode::NULL);
        put(phGraphExec, instantiate(hGraph, 0)?)
    }

    fn cuGraphInstantiateWithFlags(phGraphExec: *mut CUgraphExec, hGraph: CUgraph, flags: u64) |call| {
        require(!phGraphExec.is_null(), CUresult::INVALID_VALUE)?;
        put(phGraphExec, instantiate(hGraph, flags)?)
    }

    fn cuGraphInstantiateWithParams + cuGraphInstantiateWithParams_ptsz(phGraphExec: *mut CUgraphExec, hGraph: CUgraph, instantiateParams: *mut c_void) |call| {
        require(!phGraphExec.is_null(), CUresult::INVALID_VALUE)?;
        let params = get(instantiateParams.cast::<InstantiateParams>())?;
        put(phGraphExec, instantiate(hGraph, params.flags)?)?;
        put(instantiateParams.cast(), InstantiateParams { error_node: CUgraphNode::NULL, result: 0, ..params })
    }

    fn cuGraphExecGetFlags(hGraphExec: CUgraphExec, flags: *mut u64) |call| {
        put(flags, exec(hGraphExec)?.flags)
    }

    fn cuGraphExecUpdate_v2(hGraphExec: CUgraphExec, hGraph: CUgraph, resultInfo: *mut c_void) |call| {
        let steps = graph(hGraph)?.steps()?;
        exec(hGraphExec)?.steps().update(steps);
        // `CUgraphExecUpdateResultInfo` begins with the result: 0 is success.
        put_optional(resultInfo.cast::<c_uint>(), 0);
        Ok(())
    }

    fn cuGraphExecDestroy(hGraphExec: CUgraphExec) |call| {
        driver().execs.remove(hGraphExec.0).map(drop).ok_or(CUresult::INVALID_VALUE)
    }

    fn cuGraphLaunch + cuGraphLaunch_ptsz(hGraph: CUgraphExec, hStream: CUstream) |call| {
        launch(&*exec(hGraph)?, &*call.stream(hStream)?)
    }

    fn cuGraphUpload + cuGraphUpload_ptsz(hGraph: CUgraphExec, hStream: CUstream) |call| {
        exec(hGraph)?;
        call.stream(hStream)?;
        Ok(())
    }

    fn cuDeviceGraphMemTrim(device: wm_abi::CUdevice) |call| {
        driver().device(device)?;
        Ok(())
    }
}
