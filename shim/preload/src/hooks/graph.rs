//! Copies and memsets as nodes of graphs, which a program adds or changes by itself.
//!
//! A node may be made long before it runs, so what a copy needs to reach a peer's block is done when the node is made. A copy that
//! cannot be one copy (see [`crossing`]) becomes a child graph of several: whatever waits for the node, or is waited for, is
//! as before. A node that exists cannot become one; then its change is refused, and a program makes its graph anew.
//!
//! A description may leave its context out: the driver takes that of the memory. Mapped memory has none, so ours is named.

use std::ffi::c_void;

use wm_abi::symbol::{self, Symbol};
use wm_abi::{
    CU_GRAPH_NODE_TYPE_GRAPH, CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMSET, CU_MEMORYTYPE_DEVICE,
    CU_MEMORYTYPE_UNIFIED, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUgraph,
    CUgraphExec, CUgraphNode, CUgraphNodeParams, CUresult, CUstream,
};
use wm_driver::Api;

use super::crossing::{self, Way, within};
use super::volume::{self, Description};
use crate::boundary::Answer;
use crate::cut::Part;
use crate::state::driver;
use crate::{managers, owners};

/// Where a node goes, and behind which others.
struct Place {
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
}

/// `cuGraphAddMemcpyNode`.
pub(super) unsafe fn add_copy(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    copy: *const CUDA_MEMCPY3D,
    context: CUcontext,
) -> Answer {
    // SAFETY: null, or the program's description.
    let Some(copy) = (unsafe { copy.as_ref() }) else { return Answer::Pass };
    let place = Place { node, graph, after, count };
    let named = named(copy, context);
    match plan(copy, named) {
        // SAFETY: the program's arguments, but for the graph.
        Some(plan) => plan.add(|child| unsafe { place.add_child(child) }),
        None if named == context => Answer::Pass,
        // SAFETY: the program's arguments, but for the context.
        None => unsafe { place.add_copy(copy, named) }.into(),
    }
}

impl Place {
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
pub(super) unsafe fn add_memset(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    memset: *const CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
) -> Answer {
    // SAFETY: null, or the program's description.
    let Some(context) = (unsafe { of_memset(memset, context) }) else { return Answer::Pass };
    let add = driver().get::<symbol::cuGraphAddMemsetNode>();
    // SAFETY: the program's arguments, but for the context.
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

type Add =
    unsafe extern "C" fn(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *mut c_void) -> CUresult;

/// `cuGraphAddNode`.
pub(super) unsafe fn add<S: Symbol<Function = Add>>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    count: usize,
    params: *mut c_void,
) -> Answer {
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
pub(super) unsafe fn add_with_data<S: Symbol<Function = AddWithData>>(
    node: *mut CUgraphNode,
    graph: CUgraph,
    after: *const CUgraphNode,
    data: *const c_void,
    count: usize,
    params: *mut c_void,
) -> Answer {
    // SAFETY: as in `add`.
    unsafe { add_any(params, |params| driver().get::<S>()(node, graph, after, data, count, params)) }
}

/// `add` makes the program's call with other parameters.
unsafe fn add_any(params: *mut c_void, add: impl Fn(*mut c_void) -> CUresult) -> Answer {
    // SAFETY: null, or the program's parameters of a node.
    let Some((params, plan)) = (unsafe { changed(params) }) else { return Answer::Pass };
    let call = |mut params: CUgraphNodeParams| add(std::ptr::from_mut(&mut params).cast());
    match plan {
        Some(plan) => plan.add(|child| {
            let mut params = CUgraphNodeParams::empty(CU_GRAPH_NODE_TYPE_GRAPH);
            params.body.graph = child;
            call(params)
        }),
        None => call(params).into(),
    }
}

/// A node's parameters with its context named, and how its copy is made if it cannot be one. `None`: the driver's as they are.
///
/// # Safety
/// `params` is null or the program's parameters of a node.
unsafe fn changed(params: *mut c_void) -> Option<(CUgraphNodeParams, Option<Plan>)> {
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
        let context = named(&copy.copyParams, copy.copyCtx);
        let plan = plan(&copy.copyParams, context);
        params.body.memcpy.copyCtx = context;
        (plan.is_some() || context != copy.copyCtx).then_some((params, plan))
    }
}

/// `cuGraphMemcpyNodeSetParams`.
pub(super) unsafe fn set_copy(_node: CUgraphNode, copy: *const CUDA_MEMCPY3D) -> Answer {
    // SAFETY: null, or the program's description.
    let plan = unsafe { copy.as_ref() }.and_then(|copy| plan(copy, CUcontext::NULL));
    plan.map_or(Answer::Pass, |_| refused(CUresult::NOT_SUPPORTED))
}

/// `cuGraphNodeSetParams`.
pub(super) unsafe fn set<S>(node: CUgraphNode, params: *mut c_void) -> Answer
where
    S: Symbol<Function = unsafe extern "C" fn(CUgraphNode, *mut c_void) -> CUresult>,
{
    // SAFETY: null, or the program's parameters of a node.
    match unsafe { changed(params) } {
        None => Answer::Pass,
        Some((_, Some(_))) => refused(CUresult::NOT_SUPPORTED),
        // SAFETY: the program's node, with parameters like its own.
        Some((mut params, None)) => unsafe {
            driver().get::<S>()(node, std::ptr::from_mut(&mut params).cast()).into()
        },
    }
}

/// `cuGraphExecMemcpyNodeSetParams`.
pub(super) unsafe fn set_ready_copy(
    graph: CUgraphExec,
    node: CUgraphNode,
    copy: *const CUDA_MEMCPY3D,
    context: CUcontext,
) -> Answer {
    // SAFETY: null, or the program's description.
    let Some(copy) = (unsafe { copy.as_ref() }) else { return Answer::Pass };
    let named = named(copy, context);
    match plan(copy, named) {
        Some(_) => refused(CUresult::INVALID_VALUE),
        None if named == context => Answer::Pass,
        // SAFETY: the program's arguments, but for the context.
        None => unsafe {
            driver().get::<symbol::cuGraphExecMemcpyNodeSetParams>()(graph, node, copy, named).into()
        },
    }
}

/// `cuGraphExecMemsetNodeSetParams`.
pub(super) unsafe fn set_ready_memset(
    graph: CUgraphExec,
    node: CUgraphNode,
    memset: *const CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
) -> Answer {
    // SAFETY: null, or the program's description.
    let Some(context) = (unsafe { of_memset(memset, context) }) else { return Answer::Pass };
    // SAFETY: the program's arguments, but for the context.
    unsafe { driver().get::<symbol::cuGraphExecMemsetNodeSetParams>()(graph, node, memset, context) }.into()
}

/// `cuGraphExecNodeSetParams`.
pub(super) unsafe fn set_ready(graph: CUgraphExec, node: CUgraphNode, params: *mut c_void) -> Answer {
    // SAFETY: null, or the program's parameters of a node.
    match unsafe { changed(params) } {
        None => Answer::Pass,
        Some((_, Some(_))) => refused(CUresult::INVALID_VALUE),
        // SAFETY: the program's graph and node, with parameters like its own.
        Some((mut params, None)) => unsafe {
            let params = std::ptr::from_mut(&mut params).cast();
            driver().get::<symbol::cuGraphExecNodeSetParams>()(graph, node, params).into()
        },
    }
}

#[cold]
fn refused(code: CUresult) -> Answer {
    log::info!(
        "a graph's copy between devices was not changed: its new memory lies partly on the host; make the node anew"
    );
    Answer::Is(code)
}

/// The context of a copy's node: what the program named, else that of the first end that is ours.
fn named(copy: &CUDA_MEMCPY3D, context: CUcontext) -> CUcontext {
    if !context.is_null() {
        return context;
    }
    let has_address = |kind| matches!(kind, CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED);
    let ends = [(copy.srcMemoryType, copy.srcDevice), (copy.dstMemoryType, copy.dstDevice)];
    let ours = ends.into_iter().filter(|(kind, _)| has_address(*kind)).find_map(|(_, at)| of_memory(at));
    ours.unwrap_or(context)
}

/// The context of memory of ours: the one that it was allocated in; for a pool's, the current one if that is on its device.
fn of_memory(address: u64) -> Option<CUcontext> {
    let manager = managers::owner(address)?;
    let made_in = || manager.block(address).and_then(|block| owners::context(block.address, block.id));
    let current = || {
        let is_there = managers::current_device() == Some(manager.gpu().ordinal());
        is_there.then(|| driver().ctx_current().unwrap_or_default())
    };
    let context = made_in().or_else(current).unwrap_or_else(|| manager.gpu().context());
    (!context.is_null()).then_some(context)
}

/// How a copy is made that cannot be one node.
struct Plan {
    copy: CUDA_MEMCPY3D,
    general: CUDA_MEMCPY3D_PEER,
    way: Way,
    context: CUcontext,
}

/// `None`: the copy can be one node. The way to its ends is open for the context's device, where it can be.
fn plan(copy: &CUDA_MEMCPY3D, context: CUcontext) -> Option<Plan> {
    if !managers::are_several() {
        return None;
    }
    let general = volume::filled(&copy.general());
    let ends = volume::ends(&general);
    // One node is better where it may be one: it can be asked for, and changed. No node goes between contexts: where the way to an end is
    // closed, the driver answers.
    let needed = |way: &Way| way.parts.len() > 1 && !crossing::is_within_a_device(&ends);
    let way = || crossing::way(&ends, &volume::size(&general), CUstream::NULL).filter(needed);
    let way = within(context, way).flatten()?;
    Some(Plan { copy: *copy, general, way, context })
}

impl Plan {
    /// Makes the copies' graph and adds it; the driver's nodes have copies of it.
    fn add(&self, add: impl FnOnce(CUgraph) -> CUresult) -> Answer {
        let graph = match self.parted() {
            Ok(graph) => graph,
            Err(code) => return Answer::Is(code),
        };
        let result = add(graph);
        destroy(graph);
        Answer::Is(result)
    }

    /// A graph with a node for each part, none of which waits for another.
    fn parted(&self) -> Result<CUgraph, CUresult> {
        let mut graph = CUgraph::NULL;
        // SAFETY: the out-pointer is to a live local.
        unsafe { driver().get::<symbol::cuGraphCreate>()(&mut graph, 0) }.ok()?;
        let add = |part: &Part| {
            let (copy, mut node) = (self.copy.with(&volume::part(&self.general, part)), CUgraphNode::NULL);
            let (place, none) = (&mut node, std::ptr::null());
            // SAFETY: pointers to live locals; a part of the program's copy.
            unsafe {
                driver().get::<symbol::cuGraphAddMemcpyNode>()(place, graph, none, 0, &copy, self.context)
            }
        };
        let result = crossing::carried(self.way.parts.iter().copied(), add);
        result.ok().map(|()| graph).inspect_err(|_| destroy(graph))
    }
}

fn destroy(graph: CUgraph) {
    // SAFETY: a graph of ours that nobody else knows.
    let _ = unsafe { driver().get::<symbol::cuGraphDestroy>()(graph) };
}
