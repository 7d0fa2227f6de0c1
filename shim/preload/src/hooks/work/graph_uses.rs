//! The blocks that nodes of graphs use, noted for moves once the driver has made the call.
//!
//! The column `gate` of `shim/abi/data/driver.tsv` names a function here for each driver function
//! that makes, changes or ends a graph. A whole graph is read from the driver when it is
//! instantiated, captured or cloned: its nodes have the parameters that the driver will use.
//!
//! Invariant: what cannot be read makes the graph opaque, which pins all memory while it lives.

use std::ffi::{c_uint, c_void};

use wm_abi::*;

use crate::hooks::call::boundary;
use crate::hooks::copy::volume;
use crate::hooks::copy::volume::Description as _;
use crate::launches::{Launch, LaunchArguments, LaunchPlace};
use crate::moves::{GraphChange, GraphOwner, GraphUses};
use crate::physical;
use crate::process::driver;
use crate::registry;
use crate::subsystems::PROCESS;

/// A graph that kernels may launch: such a launch passes no gate.
const DEVICE_LAUNCH: u64 = 4;

fn note(code: CUresult, owner: impl Into<GraphOwner>, change: impl FnOnce() -> GraphChange) {
    if code == CUresult::SUCCESS {
        boundary::observe(|| PROCESS.moves.graph_changes(owner.into(), change()));
    }
}

/// A graph ends.
pub(in crate::hooks) fn ends(code: CUresult, owner: impl Into<GraphOwner>) {
    note(code, owner, || GraphChange::Ends);
}

/// What the call does to a graph is not known.
pub(in crate::hooks) fn unknown(code: CUresult, owner: impl Into<GraphOwner>) {
    note(code, owner, || GraphChange::Adds(GraphUses::opaque()));
}

/// A node copies.
///
/// # Safety
/// The description is the one of the program's call.
pub(in crate::hooks) unsafe fn copies(
    code: CUresult,
    owner: impl Into<GraphOwner>,
    copy: *const CUDA_MEMCPY3D,
) {
    // SAFETY: by contract.
    note(code, owner, || GraphChange::Adds(unsafe { copy.as_ref() }.map_or_else(GraphUses::opaque, of_copy)));
}

/// A node sets memory.
///
/// # Safety
/// The description is the one of the program's call.
pub(in crate::hooks) unsafe fn sets(
    code: CUresult,
    owner: impl Into<GraphOwner>,
    set: *const CUDA_MEMSET_NODE_PARAMS,
) {
    // SAFETY: by contract.
    let uses = || unsafe { set.as_ref() }.map_or_else(GraphUses::opaque, |set| of_addresses([set.dst]));
    note(code, owner, || GraphChange::Adds(uses()));
}

/// A graph gets a node.
///
/// # Safety
/// The driver has written the node there if it succeeded.
pub(in crate::hooks) unsafe fn added(code: CUresult, graph: CUgraph, node: *const CUgraphNode) {
    // SAFETY: by contract.
    let uses = || unsafe { node.as_ref() }.map_or_else(GraphUses::opaque, |node| of_node(*node));
    note(code, graph, || GraphChange::Adds(uses()));
}

/// A node of an executable graph becomes another graph.
pub(in crate::hooks) fn child(code: CUresult, owner: impl Into<GraphOwner>, child: CUgraph) {
    note(code, owner, || GraphChange::Adds(of_graph(child)));
}

/// A node of any kind.
///
/// # Safety
/// The description is the one of the program's call.
pub(in crate::hooks) unsafe fn node(code: CUresult, owner: impl Into<GraphOwner>, node: *const c_void) {
    // SAFETY: by contract; the kind says which part there is, and of another kind no more is read.
    note(code, owner, || GraphChange::Adds(unsafe { of_description(node) }));
}

/// A graph was captured or cloned.
///
/// # Safety
/// The driver has written the graph there if it succeeded.
pub(in crate::hooks) unsafe fn made(code: CUresult, graph: *const CUgraph) {
    if code == CUresult::SUCCESS
        // SAFETY: by contract.
        && let Some(graph) = unsafe { graph.as_ref() }
    {
        note(code, *graph, || GraphChange::Is(of_graph(*graph)));
    }
}

/// An executable graph was made.
///
/// # Safety
/// The driver has written the graph there if it succeeded.
pub(in crate::hooks) unsafe fn instantiated(code: CUresult, executable: *const CUgraphExec, graph: CUgraph) {
    if code == CUresult::SUCCESS
        // SAFETY: by contract.
        && let Some(executable) = unsafe { executable.as_ref() }
    {
        note(code, *executable, || GraphChange::Is(of_executable(*executable, graph)));
    }
}

/// An executable graph was made like a graph. If that failed, some nodes may have changed.
pub(in crate::hooks) fn updated(code: CUresult, executable: CUgraphExec, graph: CUgraph) {
    let change = || {
        let uses = of_executable(executable, graph);
        if code == CUresult::SUCCESS { GraphChange::Is(uses) } else { GraphChange::Adds(uses) }
    };
    note(CUresult::SUCCESS, executable, change);
}

fn of_executable(executable: CUgraphExec, graph: CUgraph) -> GraphUses {
    let mut uses = of_graph(graph);
    if driver().has::<symbol::cuGraphExecGetFlags>() {
        let mut flags = 0;
        // SAFETY: the program's graph, and a live local.
        let code = unsafe { driver().get::<symbol::cuGraphExecGetFlags>()(executable, &mut flags) };
        uses.is_opaque |= code != CUresult::SUCCESS || flags & DEVICE_LAUNCH != 0;
    }
    uses
}

fn of_graph(graph: CUgraph) -> GraphUses {
    let mut uses = GraphUses::default();
    match nodes(graph) {
        Some(nodes) => nodes.into_iter().for_each(|node| uses.join(of_node(node))),
        None => uses.is_opaque = true,
    }
    uses
}

fn nodes(graph: CUgraph) -> Option<Vec<CUgraphNode>> {
    let get = driver().get::<symbol::cuGraphGetNodes>();
    let mut count = 0;
    // SAFETY: the program's graph, and a live local.
    let code = unsafe { get(graph, std::ptr::null_mut(), &mut count) };
    if code != CUresult::SUCCESS {
        return None;
    }
    let mut nodes = vec![CUgraphNode::NULL; count];
    // SAFETY: the program's graph, and room for so many nodes.
    let code = if count == 0 { code } else { unsafe { get(graph, nodes.as_mut_ptr(), &mut count) } };
    (code == CUresult::SUCCESS && count == nodes.len()).then_some(nodes)
}

fn of_node(node: CUgraphNode) -> GraphUses {
    let kind = answer::<c_uint>(|kind| {
        // SAFETY: a node of the program's graph, and a live local.
        unsafe { driver().get::<symbol::cuGraphNodeGetType>()(node, kind) }
    });
    let mut uses = match kind {
        Some(CU_GRAPH_NODE_TYPE_KERNEL) => return of_kernel(node),
        Some(CU_GRAPH_NODE_TYPE_MEMCPY) => answer::<CUDA_MEMCPY3D>(|copy| {
            // SAFETY: the same.
            unsafe { driver().get::<symbol::cuGraphMemcpyNodeGetParams>()(node, copy) }
        })
        .map_or_else(GraphUses::opaque, |copy| of_copy(&copy)),
        Some(CU_GRAPH_NODE_TYPE_MEMSET) => answer::<CUDA_MEMSET_NODE_PARAMS>(|set| {
            // SAFETY: the same.
            unsafe { driver().get::<symbol::cuGraphMemsetNodeGetParams>()(node, set) }
        })
        .map_or_else(GraphUses::opaque, |set| of_addresses([set.dst])),
        Some(CU_GRAPH_NODE_TYPE_GRAPH) => answer::<CUgraph>(|graph| {
            // SAFETY: the same.
            unsafe { driver().get::<symbol::cuGraphChildGraphNodeGetGraph>()(node, graph) }
        })
        .map_or_else(GraphUses::opaque, of_graph),
        Some(kind) if uses_no_block(kind) => return GraphUses::default(),
        _ => GraphUses::opaque(),
    };
    uses.nodes.insert(node.0);
    uses
}

/// The driver's answer in a place of ours.
fn answer<T>(ask: impl FnOnce(*mut T) -> CUresult) -> Option<T> {
    let mut place = std::mem::MaybeUninit::zeroed();
    let code = ask(place.as_mut_ptr());
    // SAFETY: the driver has written it; all-zero is good in each type that is asked for here.
    (code == CUresult::SUCCESS).then(|| unsafe { place.assume_init() })
}

/// Functions of the host, events, and memory of the graph's own.
fn uses_no_block(kind: c_uint) -> bool {
    matches!(kind, CU_GRAPH_NODE_TYPE_HOST | 5..=CU_GRAPH_NODE_TYPE_EVENT_RECORD)
        || matches!(kind, CU_GRAPH_NODE_TYPE_MEM_ALLOC..=CU_GRAPH_NODE_TYPE_MEM_FREE)
}

/// The blocks that a kernel's arguments point into: where they are unknown, none is known to be
/// used, and none has to stay.
fn of_kernel(node: CUgraphNode) -> GraphUses {
    let mut uses = GraphUses::default();
    if !driver().has::<symbol::cuGraphKernelNodeGetParams_v2>() {
        return uses;
    }
    let kernel = answer::<CUDA_KERNEL_NODE_PARAMS>(|kernel| {
        // SAFETY: a node of the program's graph, and a live local.
        unsafe { driver().get::<symbol::cuGraphKernelNodeGetParams_v2>()(node, kernel) }
    });
    let Some(kernel) = kernel else { return uses };
    let Some(function) = [kernel.func.0, kernel.kern.0].into_iter().find(|handle| *handle != 0) else {
        return uses;
    };
    let arguments = LaunchArguments { parameters: kernel.kernelParams, extra: kernel.extra };
    // SAFETY: the driver's own arguments of the node, which lives during this call.
    let launch = unsafe { Launch::of_kernel(CUfunction(function), arguments, LaunchPlace::NODE) };
    let in_piece = |address| physical::range_around(address).map(|_| address);
    let used = |address| block_around(address).map(|block| block.0).or_else(|| in_piece(address));
    uses.kernels = launch.words().iter().filter_map(|word| used(word.address)).collect();
    uses
}

fn of_copy(copy: &CUDA_MEMCPY3D) -> GraphUses {
    let ends = volume::ends(&volume::filled(&copy.general()));
    of_addresses(ends.iter().flatten().map(|end| end.address()))
}

/// Blocks around these addresses. Bytes of a copy or a memset do not run past their block, or the
/// call is refused.
fn of_addresses(addresses: impl IntoIterator<Item = u64>) -> GraphUses {
    let mut uses = GraphUses::default();
    for address in addresses {
        match block_around(address) {
            Some(block) => drop(uses.named.insert(block)),
            None => {
                // Copies and memsets may run through pieces that follow each other.
                let pieces = physical::range_around(address);
                uses.names_pieces |= pieces.is_some();
                uses.named.extend(pieces.map(|range| (range.start, range.end)));
            }
        }
    }
    uses
}

fn block_around(address: u64) -> Option<(u64, u64)> {
    let block = registry::owner(address)?.extent(address)?;
    Some((block.address, block.address + block.bytes))
}

/// # Safety
/// Null, or a description of a node. Its kind says which part there is.
unsafe fn of_description(node: *const c_void) -> GraphUses {
    // SAFETY: by contract.
    let Some(node) = (unsafe { node.cast::<CUgraphNodeParams>().as_ref() }) else {
        return GraphUses::opaque();
    };
    // SAFETY: the kind says which part it is, and all bits are good in each.
    unsafe {
        match node.type_ {
            CU_GRAPH_NODE_TYPE_MEMCPY => of_copy(&node.body.memcpy.copyParams),
            CU_GRAPH_NODE_TYPE_MEMSET => of_addresses([node.body.memset.dst]),
            CU_GRAPH_NODE_TYPE_GRAPH => of_graph(node.body.graph),
            CU_GRAPH_NODE_TYPE_KERNEL => GraphUses::default(),
            kind if uses_no_block(kind) => GraphUses::default(),
            _ => GraphUses::opaque(),
        }
    }
}
