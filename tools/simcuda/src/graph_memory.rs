//! Memory nodes that a program adds to a graph itself.
//!
//! The memory exists from the node's creation until the graph and all its executable forms are
//! gone. On a device it exists only while the graph runs: a program that reads it in between is
//! wrong, and the simulator does not detect that.

use std::ffi::c_void;
use std::sync::Arc;

use wm_abi::{CUDA_MEM_ALLOC_NODE_PARAMS, CUdeviceptr, CUgraph, CUgraphNode, CUresult};

use crate::entry::{Outcome, exports, get, put, require};
use crate::graph::{Kind, graph, node};
use crate::graph_api::add;
use crate::memory::{self, Owner};
use crate::pool::with_reclaim;
use crate::state::driver;
use crate::vmm::{location_of, place_of};

/// A block of a graph, which lives while the graph can run.
fn allocate(into: CUgraph, params: &CUDA_MEM_ALLOC_NODE_PARAMS) -> Outcome<CUdeviceptr> {
    let (graph, place) = (graph(into)?, place_of(&params.poolProps.location)?);
    let block = with_reclaim(place, || memory::allocate(place, params.bytesize as u64))?;
    let start = block.enter(params.bytesize as u64, |physical| Owner::Graph { physical });
    graph.retain(start);
    Ok(start)
}

/// The block of a node of this kind.
fn block_of(handle: CUgraphNode, kind: Kind) -> Outcome<(u64, usize)> {
    let node = node(handle)?;
    require(node.kind == kind, CUresult::INVALID_VALUE)?;
    node.block.get().copied().ok_or(CUresult::INVALID_VALUE)
}

/// Stores the block of a node that was just added.
fn set_block(handle: CUgraphNode, block: (u64, usize)) -> Outcome {
    node(handle)?.block.set(block).map_err(|_| CUresult::ILLEGAL_STATE)
}

/// Adds a memory node, and writes its address into its parameters.
///
/// # Safety
/// As [`add`]; `params` is null, or parameters that may be written.
pub(crate) unsafe fn add_allocation(
    out: *mut CUgraphNode,
    into: CUgraph,
    after: (*const CUgraphNode, usize),
    place: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Outcome {
    // SAFETY: by contract.
    unsafe {
        let params = get(place)?;
        let address = allocate(into, &params)?;
        add(out, into, after.0, after.1, Kind::ALLOCATE.into(), Arc::new(|| Ok(())))?;
        set_block(*out, (address, params.bytesize))?;
        put(place, CUDA_MEM_ALLOC_NODE_PARAMS { dptr: address, ..params })
    }
}

/// Adds a node that frees the memory of an allocation node.
///
/// # Safety
/// As [`add`].
pub(crate) unsafe fn add_free(
    out: *mut CUgraphNode,
    into: CUgraph,
    after: (*const CUgraphNode, usize),
    address: CUdeviceptr,
) -> Outcome {
    let memory = driver().memory();
    let is_graphs = memory.find(address).is_some_and(|area| matches!(area.owner, Owner::Graph { .. }));
    drop(memory);
    require(is_graphs, CUresult::INVALID_VALUE)?;
    // SAFETY: by contract.
    unsafe {
        add(out, into, after.0, after.1, Kind::FREE.into(), Arc::new(|| Ok(())))?;
        set_block(*out, (address, 0))
    }
}

exports! {
    fn cuGraphAddMemAllocNode(phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, nodeParams: *mut c_void) |call| {
        add_allocation(phGraphNode, hGraph, (dependencies, numDependencies), nodeParams.cast())
    }

    fn cuGraphAddMemFreeNode(phGraphNode: *mut CUgraphNode, hGraph: CUgraph, dependencies: *const CUgraphNode, numDependencies: usize, dptr: CUdeviceptr) |call| {
        add_free(phGraphNode, hGraph, (dependencies, numDependencies), dptr)
    }

    fn cuGraphMemAllocNodeGetParams(hNode: CUgraphNode, params_out: *mut c_void) |call| {
        let (address, bytes) = block_of(hNode, Kind::ALLOCATE)?;
        require(!params_out.is_null(), CUresult::INVALID_VALUE)?;
        let place = driver().memory().place(address).ok_or(CUresult::INVALID_VALUE)?;
        // SAFETY: numbers and null pointers are all zeroes.
        let mut params: CUDA_MEM_ALLOC_NODE_PARAMS = std::mem::zeroed();
        params.poolProps.allocType = wm_abi::CU_MEM_ALLOCATION_TYPE_PINNED;
        params.poolProps.location = location_of(place);
        (params.bytesize, params.dptr) = (bytes, address);
        put(params_out.cast(), params)
    }

    fn cuGraphMemFreeNodeGetParams(hNode: CUgraphNode, dptr_out: *mut CUdeviceptr) |call| {
        put(dptr_out, block_of(hNode, Kind::FREE)?.0)
    }
}
