//! Copies and memsets as nodes of graphs, which a program adds or changes by itself.
//!
//! A node may be made long before it runs, so what a copy needs to reach a peer's block is done
//! when the node is made. A copy that cannot be one copy (see [`peer_copy`]) becomes a child graph
//! of several copies, with the dependencies that the node would have. An existing node cannot
//! become a child graph: its change is refused then, and a program makes its graph anew.
//!
//! A description may leave its context out: the driver then takes that of the memory. Mapped memory
//! has none, so we fill it in.

use std::ffi::c_void;

use wm_abi::symbol::{self, Symbol};
use wm_abi::{
    CU_GRAPH_NODE_TYPE_GRAPH, CU_GRAPH_NODE_TYPE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEMCPY,
    CU_GRAPH_NODE_TYPE_MEMSET, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED, CUDA_MEM_ALLOC_NODE_PARAMS,
    CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUdevice, CUgraph, CUgraphExec,
    CUgraphNode, CUgraphNodeParams, CUresult, CUstream,
};
use wm_driver::api::owned::Graph;
use wm_driver::{Api, Table};

use crate::hooks::call::boundary::Outcome;
use crate::hooks::call::oom;
use crate::hooks::copy::cut::CopyPart;
use crate::hooks::copy::peer_calls;
use crate::hooks::copy::peer_copy::{self, PeerCopy, with_context};
use crate::hooks::copy::volume::{self, Description};
use crate::hooks::memory::peer_access;
use crate::process::driver;
use crate::registry::{self, REGISTRY};

/// Where a node goes, and behind which others.
struct NewNode {
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
}

/// `cuGraphAddMemcpyNode`.
pub(in crate::hooks) unsafe fn graph_add_memcpy_node(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    copy: *const CUDA_MEMCPY3D,
    context: CUcontext,
) -> Outcome {
    // SAFETY: null, or the program's description.
    let Some(copy) = (unsafe { copy.as_ref() }) else { return Outcome::Forward };
    let new_node = NewNode { node, graph, after, count };
    let in_context = context_of_copy(copy, context);
    match child_graph_copy(copy, in_context) {
        // SAFETY: the program's arguments, with another graph.
        Some(child) => child.add(|graph| unsafe { new_node.add_child(graph) }),
        None if in_context == context => Outcome::Forward,
        // SAFETY: the program's arguments, with another context.
        None => unsafe { new_node.add_copy(copy, in_context) }.into(),
    }
}

impl NewNode {
    unsafe fn add_copy(&self, copy: &CUDA_MEMCPY3D, context: CUcontext) -> CUresult {
        let add = driver().get::<symbol::cuGraphAddMemcpyNode>();
        // SAFETY: the program's place for a node, and a description like its own.
        unsafe { add(self.node, self.graph, self.after, self.count, copy, context) }
    }

    unsafe fn add_child(&self, child: CUgraph) -> CUresult {
        let add = driver().get::<symbol::cuGraphAddChildGraphNode>();
        // SAFETY: the program's place for a node.
        unsafe { add(self.node, self.graph, self.after, self.count, child) }
    }
}

/// `cuGraphAddMemsetNode`.
pub(in crate::hooks) unsafe fn graph_add_memset_node(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    memset: *const CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
) -> Outcome {
    // SAFETY: null, or the program's description.
    let Some(context) = (unsafe { of_memset(memset, context) }) else { return Outcome::Forward };
    let add = driver().get::<symbol::cuGraphAddMemsetNode>();
    // SAFETY: the program's arguments, with another context.
    unsafe { add(node, graph, after, count, memset, context) }.into()
}

/// The context to name for a memset that names none; `None`: the driver's as it is.
///
/// # Safety
/// `memset` is null or the program's description.
unsafe fn of_memset(memset: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext) -> Option<CUcontext> {
    // SAFETY: by contract.
    unsafe { memset.as_ref() }.filter(|_| context.is_null()).and_then(|memset| of_memory(memset.dst))
}

/// `cuGraphAddMemAllocNode`. Its memory is that of the device that it names, whichever is current.
pub(in crate::hooks) unsafe fn graph_add_mem_alloc_node(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    params: *mut c_void,
) -> Outcome {
    // SAFETY: null, or the program's description.
    let allocation = unsafe { params.cast::<CUDA_MEM_ALLOC_NODE_PARAMS>().as_ref() };
    let add = driver().get::<symbol::cuGraphAddMemAllocNode>();
    // SAFETY: the program's arguments. A call that returned out of memory did nothing.
    oom::retry_on(allocation.map(device_of), || unsafe { add(node, graph, after, count, params) }).into()
}

fn device_of(allocation: &CUDA_MEM_ALLOC_NODE_PARAMS) -> CUdevice {
    allocation.poolProps.location.id
}

type Add =
    unsafe extern "C" fn(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *mut c_void) -> CUresult;

/// `cuGraphAddNode`.
pub(in crate::hooks) unsafe fn graph_add_node<S: Symbol<Function = Add>>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    params: *mut c_void,
) -> Outcome {
    // SAFETY: the program's arguments, and parameters like its own.
    unsafe { add_any(params, |params| driver().get::<S>()(node, graph, after, count, params)) }
}

type AddWithData = unsafe extern "C" fn(
    *mut CUgraphNode,
    CUgraph,
    *const CUgraphNode,
    *const c_void,
    usize,
    *mut c_void,
) -> CUresult;

/// `cuGraphAddNode_v2`, whose edges have data.
pub(in crate::hooks) unsafe fn graph_add_node_v2<S: Symbol<Function = AddWithData>>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    data: *const c_void,
    count: usize,
    params: *mut c_void,
) -> Outcome {
    // SAFETY: as in `add`.
    unsafe { add_any(params, |params| driver().get::<S>()(node, graph, after, data, count, params)) }
}

/// `add` makes the program's call with other parameters.
unsafe fn add_any(params: *mut c_void, add: impl Fn(*mut c_void) -> CUresult) -> Outcome {
    // SAFETY: null, or the program's parameters of a node, whose kind says which part it is.
    let of_memory = unsafe {
        let kind = params.cast::<u32>().as_ref().filter(|kind| **kind == CU_GRAPH_NODE_TYPE_MEM_ALLOC);
        kind.map(|_| device_of(&(*params.cast::<CUgraphNodeParams>()).body.alloc))
    };
    if of_memory.is_some() {
        return oom::retry_on(of_memory, || add(params)).into();
    }
    // SAFETY: null, or the program's parameters of a node.
    let Some((params, child)) = (unsafe { changed(params) }) else { return Outcome::Forward };
    let call = |mut params: CUgraphNodeParams| add(std::ptr::from_mut(&mut params).cast());
    match child {
        Some(child) => child.add(|graph| {
            let mut params = CUgraphNodeParams::empty(CU_GRAPH_NODE_TYPE_GRAPH);
            params.body.graph = graph;
            call(params)
        }),
        None => call(params).into(),
    }
}

/// A node's parameters with its context named, and how its copy is made if it cannot be one.
/// `None`: the driver's as they are.
///
/// # Safety
/// `params` is null or the program's parameters of a node.
unsafe fn changed(params: *mut c_void) -> Option<(CUgraphNodeParams, Option<ChildGraphCopy>)> {
    // SAFETY: by contract; of a kind that is not looked at, no more is read than every kind has.
    let mut params = unsafe {
        let kind = params.cast::<u32>().as_ref()?;
        matches!(*kind, CU_GRAPH_NODE_TYPE_MEMCPY | CU_GRAPH_NODE_TYPE_MEMSET)
            .then(|| params.cast::<CUgraphNodeParams>().read())?
    };
    // SAFETY: the kind says which part it is, and all bits are good in either.
    unsafe {
        if params.type_ == CU_GRAPH_NODE_TYPE_MEMSET {
            let memset = &mut params.body.memset;
            let context = of_memory(memset.dst).filter(|_| memset.ctx.is_null())?;
            memset.ctx = context;
            return Some((params, None));
        }
        let copy = params.body.memcpy;
        let context = context_of_copy(&copy.copyParams, copy.copyCtx);
        let child = child_graph_copy(&copy.copyParams, context);
        params.body.memcpy.copyCtx = context;
        (child.is_some() || context != copy.copyCtx).then_some((params, child))
    }
}

/// `cuGraphMemcpyNodeSetParams`.
pub(in crate::hooks) unsafe fn graph_memcpy_node_set_params(
    _node: CUgraphNode,
    copy: *const CUDA_MEMCPY3D,
) -> Outcome {
    // SAFETY: null, or the program's description.
    let child = unsafe { copy.as_ref() }.and_then(|copy| child_graph_copy(copy, CUcontext::NULL));
    child.map_or(Outcome::Forward, |_| refused(CUresult::NOT_SUPPORTED))
}

/// `cuGraphNodeSetParams`.
pub(in crate::hooks) unsafe fn graph_node_set_params<S>(node: CUgraphNode, params: *mut c_void) -> Outcome
where
    S: Symbol<Function = unsafe extern "C" fn(CUgraphNode, *mut c_void) -> CUresult>,
{
    // SAFETY: null, or the program's parameters of a node.
    match unsafe { changed(params) } {
        None => Outcome::Forward,
        Some((_, Some(_))) => refused(CUresult::NOT_SUPPORTED),
        // SAFETY: the program's node, with parameters like its own.
        Some((mut params, None)) => unsafe {
            driver().get::<S>()(node, std::ptr::from_mut(&mut params).cast()).into()
        },
    }
}

/// `cuGraphExecMemcpyNodeSetParams`.
pub(in crate::hooks) unsafe fn graph_exec_memcpy_node_set_params(
    graph: CUgraphExec,
    node: CUgraphNode,
    copy: *const CUDA_MEMCPY3D,
    context: CUcontext,
) -> Outcome {
    // SAFETY: null, or the program's description.
    let Some(copy) = (unsafe { copy.as_ref() }) else { return Outcome::Forward };
    let in_context = context_of_copy(copy, context);
    match child_graph_copy(copy, in_context) {
        Some(_) => refused(CUresult::INVALID_VALUE),
        None if in_context == context => Outcome::Forward,
        // SAFETY: the program's arguments, with another context.
        None => unsafe {
            driver().get::<symbol::cuGraphExecMemcpyNodeSetParams>()(graph, node, copy, in_context).into()
        },
    }
}

/// `cuGraphExecMemsetNodeSetParams`.
pub(in crate::hooks) unsafe fn graph_exec_memset_node_set_params(
    graph: CUgraphExec,
    node: CUgraphNode,
    memset: *const CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
) -> Outcome {
    // SAFETY: null, or the program's description.
    let Some(context) = (unsafe { of_memset(memset, context) }) else { return Outcome::Forward };
    // SAFETY: the program's arguments, with another context.
    unsafe { driver().get::<symbol::cuGraphExecMemsetNodeSetParams>()(graph, node, memset, context) }.into()
}

/// `cuGraphExecNodeSetParams`.
pub(in crate::hooks) unsafe fn graph_exec_node_set_params(
    graph: CUgraphExec,
    node: CUgraphNode,
    params: *mut c_void,
) -> Outcome {
    // SAFETY: null, or the program's parameters of a node.
    match unsafe { changed(params) } {
        None => Outcome::Forward,
        Some((_, Some(_))) => refused(CUresult::INVALID_VALUE),
        // SAFETY: the program's graph and node, with parameters like its own.
        Some((mut params, None)) => unsafe {
            let params = std::ptr::from_mut(&mut params).cast();
            driver().get::<symbol::cuGraphExecNodeSetParams>()(graph, node, params).into()
        },
    }
}

#[cold]
fn refused(code: CUresult) -> Outcome {
    log::info!(
        "a graph's copy between devices was not changed: its new memory lies partly on the host; make the node anew"
    );
    Outcome::Return(code)
}

/// The context of a copy's node: the one that the program named, else that of our first end.
fn context_of_copy(copy: &CUDA_MEMCPY3D, context: CUcontext) -> CUcontext {
    if !context.is_null() {
        return context;
    }
    let has_address = |kind| matches!(kind, CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED);
    let ends = [(copy.srcMemoryType, copy.srcDevice), (copy.dstMemoryType, copy.dstDevice)];
    let ours = ends.into_iter().filter(|(kind, _)| has_address(*kind)).find_map(|(_, at)| of_memory(at));
    ours.unwrap_or(context)
}

/// The context of memory of ours: the one that it was allocated in; for a pool's, the current one
/// if that is on its device.
fn of_memory(address: u64) -> Option<CUcontext> {
    let manager = registry::owner(address)?;
    let made_in = || {
        manager.block(address).and_then(|block| REGISTRY.context_blocks.context_of(block.address, block.id))
    };
    let current = || {
        let is_there = registry::current_device() == Some(manager.gpu().ordinal());
        is_there.then(|| driver().ctx_current().unwrap_or_default())
    };
    let context = made_in().or_else(current).unwrap_or_else(|| manager.gpu().context());
    (!context.is_null()).then_some(context)
}

/// A copy that is added to a graph as a child graph, because one memcpy node cannot make it.
struct ChildGraphCopy {
    copy: CUDA_MEMCPY3D,
    general: CUDA_MEMCPY3D_PEER,
    peer: PeerCopy,
    context: CUcontext,
}

/// `None`: one node can make the copy. Grants the context's device access to both ends first, where
/// that is possible.
fn child_graph_copy(copy: &CUDA_MEMCPY3D, context: CUcontext) -> Option<ChildGraphCopy> {
    if !peer_access::has_several_devices() {
        return None;
    }
    let general = volume::filled(&copy.general());
    let (ends, size) = (volume::ends(&general), volume::size(&general));
    let ends = ends.each_ref().map(Option::as_ref);
    // One node is better where it may be one: it can be asked for, and changed. No node goes
    // between contexts: where the way to an end is closed, the driver answers.
    let needed = |peer: &PeerCopy| peer.parts.len() > 1 && !peer_copy::is_within_a_device(ends);
    let peer = || peer_copy::plan(ends, &size, CUstream::NULL).filter(needed);
    let peer = with_context(context, peer).flatten()?;
    Some(ChildGraphCopy { copy: *copy, general, peer, context })
}

impl ChildGraphCopy {
    /// Makes the copies' graph and adds it; the driver's nodes have copies of it.
    fn add(&self, add: impl FnOnce(CUgraph) -> CUresult) -> Outcome {
        Outcome::Return(match self.parted() {
            Ok(graph) => add(graph.raw()),
            Err(code) => code,
        })
    }

    /// A graph with a node for each part, none of which waits for another.
    fn parted(&self) -> Result<Graph<'static, Table>, CUresult> {
        let graph = Graph::new(driver())?;
        let add = |part: &CopyPart| {
            let (copy, mut node) =
                (self.copy.with(&volume::sub_volume(&self.general, part)), CUgraphNode::NULL);
            let (place, none) = (&mut node, std::ptr::null());
            // SAFETY: pointers to live locals; a part of the program's copy.
            unsafe {
                driver().get::<symbol::cuGraphAddMemcpyNode>()(
                    place,
                    graph.raw(),
                    none,
                    0,
                    &copy,
                    self.context,
                )
            }
        };
        let result = peer_calls::one_by_one(self.peer.parts.iter().copied(), add);
        result.ok().map(|()| graph)
    }
}
