//! Copies and memsets as nodes of graphs: added by the call for copies or by the one for any kind,
//! and changed.
//!
//! The copy of an executable graph can be changed only to memory of the same kind: memory of a
//! context to memory of that context, memory of none to memory of none. A description without a
//! context uses that of its memory, which mapped memory does not have: then the driver refuses any
//! mapped memory but the node's own.

use std::ffi::c_void;

use wm_abi::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_UNIFIED, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUgraph,
    CUgraphExec, CUgraphNode, CUgraphNodeParams, CUresult,
};

use crate::entry::{Call, Outcome, exports, get, require};
use crate::graph::{Kind, exec, node};
use crate::graph_api::add;
use crate::graph_form::{child, copying, setting};
use crate::graph_memory::{add_allocation, add_free};
use crate::memory::Owner;
use crate::state::driver;

/// The owner of a place in memory, as nodes distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Belongs {
    Nowhere,
    Context(usize),
    Pool,
    /// By its mapping.
    Mapping(u64),
}

fn belongs(kind: u32, address: u64) -> Belongs {
    if !matches!(kind, CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED) {
        return Belongs::Nowhere;
    }
    let memory = driver().memory();
    let Some(area) = memory.find(address) else { return Belongs::Nowhere };
    match (&area.owner, area.context()) {
        (Owner::Reserved(_), _) => {
            area.mapping(address).map_or(Belongs::Nowhere, |(_, mapping)| Belongs::Mapping(mapping.id))
        }
        (_, Some(context)) => Belongs::Context(context),
        _ => Belongs::Pool,
    }
}

fn may_follow(old: Belongs, new: Belongs, named: bool) -> bool {
    match (old, new) {
        (Belongs::Mapping(old), Belongs::Mapping(new)) => named || old == new,
        (old, new) => old == new,
    }
}

/// The owners of the ends of one copy and of another, end by end.
fn ends(old: &CUDA_MEMCPY3D, new: &CUDA_MEMCPY3D) -> [(Belongs, Belongs); 2] {
    let [old, new] = [old, new].map(|copy| {
        [belongs(copy.srcMemoryType, copy.srcDevice), belongs(copy.dstMemoryType, copy.dstDevice)]
    });
    [(old[0], new[0]), (old[1], new[1])]
}

/// May an executable graph's copy become this one?
fn check_change(old: &CUDA_MEMCPY3D, new: &CUDA_MEMCPY3D, context: CUcontext) -> Outcome {
    let fits = ends(old, new).into_iter().all(|(old, new)| may_follow(old, new, !context.is_null()));
    require(fits && old.Height <= 1 && old.Depth <= 1, CUresult::INVALID_VALUE)
}

/// May a graph's copy become this one? The kind of memory may change.
fn check_resolved(old: &CUDA_MEMCPY3D, new: &CUDA_MEMCPY3D, context: CUcontext) -> Outcome {
    let is_mapped = |belongs| matches!(belongs, Belongs::Mapping(_));
    let mapped = ends(old, new).into_iter().filter(|(old, new)| is_mapped(*old) && is_mapped(*new));
    let fits = mapped.into_iter().all(|(old, new)| may_follow(old, new, !context.is_null()));
    require(fits, CUresult::INVALID_VALUE)
}

fn set(call: &Call, handle: CUgraphNode, copy: &CUDA_MEMCPY3D, context: CUcontext) -> Outcome {
    let node = node(handle)?;
    let old = node.form().copied()?;
    check_resolved(&old, copy, context)?;
    let (form, work) = copying(call, copy, context)?;
    node.change(form, work);
    Ok(())
}

fn set_ready(
    call: &Call,
    graph: CUgraphExec,
    handle: CUgraphNode,
    copy: &CUDA_MEMCPY3D,
    context: CUcontext,
) -> Outcome {
    let old = node(handle)?.form().copied();
    old.map_or(Ok(()), |old| check_change(&old, copy, context))?;
    let (form, work) = copying(call, copy, context)?;
    exec(graph)?.steps().change(handle.0, form.fix(work))
}

/// Adds a copy's node.
///
/// # Safety
/// As [`add`].
unsafe fn add_copy(
    call: &Call,
    out: *mut CUgraphNode,
    into: CUgraph,
    after: (*const CUgraphNode, usize),
    copy: &CUDA_MEMCPY3D,
    context: CUcontext,
) -> Outcome {
    let (form, work) = copying(call, copy, context)?;
    // SAFETY: by contract.
    unsafe { add(out, into, after.0, after.1, form, work) }
}

fn set_memset(call: &Call, handle: CUgraphNode, p: &CUDA_MEMSET_NODE_PARAMS, context: CUcontext) -> Outcome {
    let node = node(handle)?;
    require(node.kind == Kind::MEMSET, CUresult::INVALID_VALUE)?;
    let (form, work) = setting(call, p, context)?;
    node.change(form, work);
    Ok(())
}

fn set_ready_memset(
    call: &Call,
    graph: CUgraphExec,
    handle: CUgraphNode,
    p: &CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
) -> Outcome {
    let (form, work) = setting(call, p, context)?;
    exec(graph)?.steps().change(handle.0, form.fix(work))
}

/// The part of a node of any kind for a memset.
fn memset_of(params: &CUgraphNodeParams) -> (CUDA_MEMSET_NODE_PARAMS, CUcontext) {
    // SAFETY: every part of the union is valid for all bit patterns.
    let p = unsafe { params.body.memset };
    let (dst, pitch, value, width) = (p.dst, p.pitch, p.value, p.width);
    (
        CUDA_MEMSET_NODE_PARAMS { dst, pitch, value, elementSize: p.elementSize, width, height: p.height },
        p.ctx,
    )
}

/// Adds a node of any kind, if that kind is simulated.
///
/// # Safety
/// As [`add`].
unsafe fn add_any(
    call: &Call,
    out: *mut CUgraphNode,
    into: CUgraph,
    after: (*const CUgraphNode, usize),
    place: *mut CUgraphNodeParams,
) -> Outcome {
    // SAFETY: by contract; every part of the parameters is valid for all bit patterns.
    unsafe {
        let params = &get(place)?;
        match Kind(params.type_) {
            Kind::ALLOCATE => add_allocation(out, into, after, &raw mut (*place).body.alloc),
            Kind::FREE => add_free(out, into, after, params.body.free),
            Kind::MEMCPY => {
                let p = params.body.memcpy;
                add_copy(call, out, into, after, &p.copyParams, p.copyCtx)
            }
            Kind::MEMSET => {
                let (p, context) = memset_of(params);
                let (form, work) = setting(call, &p, context)?;
                add(out, into, after.0, after.1, form, work)
            }
            Kind::GRAPH => {
                let (form, work) = child(params.body.graph)?;
                add(out, into, after.0, after.1, form, work)
            }
            _ => Err(CUresult::NOT_SUPPORTED),
        }
    }
}

exports! {
    fn cuGraphAddMemcpyNode(phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, copyParams: *const CUDA_MEMCPY3D, ctx: CUcontext) |call| {
        add_copy(call, phGraphNode, hGraph, (dependencies, numDependencies), &get(copyParams)?, ctx)
    }

    fn cuGraphAddNode(phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, nodeParams: *mut c_void) |call| {
        add_any(call, phGraphNode, hGraph, (dependencies, numDependencies), nodeParams.cast())
    }

    fn cuGraphAddNode_v2(phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, dependencyData: *const c_void, numDependencies: usize, nodeParams: *mut c_void) |call| {
        add_any(call, phGraphNode, hGraph, (dependencies, numDependencies), nodeParams.cast())
    }

    fn cuGraphMemcpyNodeSetParams(hNode: CUgraphNode, nodeParams: *const CUDA_MEMCPY3D) |call| {
        // The node keeps its context.
        let context = call.context()?.handle;
        set(call, hNode, &get(nodeParams)?, CUcontext(context))
    }

    fn cuGraphMemsetNodeSetParams(hNode: CUgraphNode, nodeParams: *const CUDA_MEMSET_NODE_PARAMS) |call| {
        // The node keeps its context.
        let context = call.context()?.handle;
        set_memset(call, hNode, &get(nodeParams)?, CUcontext(context))
    }

    fn cuGraphNodeSetParams(hNode: CUgraphNode, nodeParams: *mut c_void) |call| {
        let params: CUgraphNodeParams = get(nodeParams.cast())?;
        match node(hNode)?.kind {
            Kind::MEMCPY => set(call, hNode, &params.body.memcpy.copyParams, params.body.memcpy.copyCtx),
            Kind::MEMSET => {
                let (p, context) = memset_of(&params);
                set_memset(call, hNode, &p, context)
            }
            _ => Err(CUresult::NOT_SUPPORTED),
        }
    }

    fn cuGraphExecMemcpyNodeSetParams(hGraphExec: CUgraphExec, hNode: CUgraphNode, copyParams: *const CUDA_MEMCPY3D, ctx: CUcontext) |call| {
        set_ready(call, hGraphExec, hNode, &get(copyParams)?, ctx)
    }

    fn cuGraphExecMemsetNodeSetParams(hGraphExec: CUgraphExec, hNode: CUgraphNode, memsetParams: *const CUDA_MEMSET_NODE_PARAMS, ctx: CUcontext) |call| {
        set_ready_memset(call, hGraphExec, hNode, &get(memsetParams)?, ctx)
    }

    fn cuGraphExecNodeSetParams(hGraphExec: CUgraphExec, hNode: CUgraphNode, nodeParams: *mut c_void) |call| {
        let params: CUgraphNodeParams = get(nodeParams.cast())?;
        match node(hNode)?.kind {
            Kind::MEMCPY => set_ready(call, hGraphExec, hNode, &params.body.memcpy.copyParams, params.body.memcpy.copyCtx),
            Kind::MEMSET => {
                let (p, context) = memset_of(&params);
                set_ready_memset(call, hGraphExec, hNode, &p, context)
            }
            _ => Err(CUresult::NOT_SUPPORTED),
        }
    }
}
