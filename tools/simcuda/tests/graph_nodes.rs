//! Hazard (vacuous test): a node tells other parameters than the driver's, or memory of its copy
//! moves unseen, and a library that reads nodes passes its tests without having read one.

mod common;

use common::*;

const NOTHING: *const CUgraphNode = std::ptr::null();

fn captured(work: impl FnOnce(CUstream)) -> CUgraph {
    let (stream, mut graph) = (stream(CU_STREAM_NON_BLOCKING), CUgraph::NULL);
    ok!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    work(stream);
    ok!(cuStreamEndCapture(stream, &raw mut graph));
    graph
}

/// Nodes and their kinds, in order.
fn nodes(graph: CUgraph) -> Vec<(u32, CUgraphNode)> {
    let (mut nodes, mut count) = ([CUgraphNode::NULL; 8], 8);
    ok!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count));
    let kind = |node: &CUgraphNode| {
        let mut kind = 99;
        ok!(cuGraphNodeGetType(*node, &raw mut kind));
        (kind, *node)
    };
    nodes[..count].iter().map(kind).collect()
}

fn executable(graph: CUgraph) -> CUgraphExec {
    let mut executable = CUgraphExec::NULL;
    ok!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
    executable
}

fn copy_of(node: CUgraphNode) -> CUDA_MEMCPY3D {
    // SAFETY: numbers, null handles and null pointers are all zeroes.
    let mut copy = unsafe { std::mem::zeroed() };
    ok!(cuGraphMemcpyNodeGetParams(node, &raw mut copy));
    copy
}

fn set_of(node: CUgraphNode) -> CUDA_MEMSET_NODE_PARAMS {
    // SAFETY: numbers are all zeroes.
    let mut set = unsafe { std::mem::zeroed() };
    ok!(cuGraphMemsetNodeGetParams(node, &raw mut set));
    set
}

fn first_argument(node: CUgraphNode) -> (CUfunction, u64) {
    // SAFETY: numbers, null handles and null pointers are all zeroes.
    let mut kernel: CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
    ok!(cuGraphKernelNodeGetParams_v2(node, &raw mut kernel));
    // SAFETY: the node's own arguments, of which the first one is an address.
    (kernel.func, unsafe { kernel.kernelParams.read().cast::<u64>().read() })
}

#[test]
fn captured_nodes_tell_their_parameters() {
    start(&[]);
    let (first, second, host) = (allocate(4096), allocate(4096), flag());
    let function = kernel("wm_fill_u32");
    let graph = captured(|stream| {
        ok!(cuMemcpyDtoDAsync_v2(second, first + 8, 64, stream));
        ok!(cuMemsetD2D16Async(first, 256, 7, 3, 5, stream));
        let (mut address, mut count, mut value) = (second, 2_u64, 9_u32);
        let mut parameters = [at(&mut address), at(&mut count), at(&mut value)];
        assert_eq!(launch(function, stream, &mut parameters), CUresult::SUCCESS);
        ok!(cuMemcpyHtoDAsync_v2(first, host.cast(), 4, stream));
    });
    let nodes = nodes(graph);
    assert_eq!(nodes.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [1, 2, 0, 1]);
    let copy = copy_of(nodes[0].1);
    assert_eq!([copy.srcMemoryType, copy.dstMemoryType], [CU_MEMORYTYPE_DEVICE; 2]);
    assert_eq!([copy.srcDevice, copy.dstDevice], [first + 8, second]);
    assert_eq!([copy.WidthInBytes, copy.Height, copy.Depth], [64, 1, 1]);
    let set = set_of(nodes[1].1);
    assert_eq!((set.dst, set.pitch, set.value, set.elementSize), (first, 256, 7, 2));
    assert_eq!((set.width, set.height), (3, 5));
    assert_eq!(first_argument(nodes[2].1), (function, second));
    let copy = copy_of(nodes[3].1);
    assert_eq!([copy.srcMemoryType, copy.dstMemoryType], [CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE]);
    assert_eq!((copy.srcHost.cast_mut().cast(), copy.dstDevice), (host, first));
    // SAFETY: numbers are all zeroes.
    let mut set: CUDA_MEMSET_NODE_PARAMS = unsafe { std::mem::zeroed() };
    fails!(INVALID_VALUE, cuGraphMemsetNodeGetParams(nodes[0].1, &raw mut set));
}

/// A child is a copy of the program's graph, lives as long as its node, and runs as it was changed.
#[test]
fn a_child_is_a_graph_of_its_node() {
    let here = start(&[]);
    let (first, second) = (allocate(4), allocate(4));
    let (given, mut graph, mut node) =
        (captured(|stream| ok!(cuMemsetD32Async(first, 5, 1, stream))), CUgraph::NULL, CUgraphNode::NULL);
    ok!(cuGraphCreate(&raw mut graph, 0));
    ok!(cuGraphAddChildGraphNode(&raw mut node, graph, NOTHING, 0, given));
    ok!(cuGraphDestroy(given));
    let child = |node| {
        let mut child = CUgraph::NULL;
        ok!(cuGraphChildGraphNodeGetGraph(node, &raw mut child));
        child
    };
    assert_ne!(child(node), given);
    let inner = nodes(child(node))[0].1;
    let changed = CUDA_MEMSET_NODE_PARAMS { dst: second, ..set_of(inner) };
    ok!(cuGraphMemsetNodeSetParams(inner, &raw const changed));
    let mut clone = CUgraph::NULL;
    ok!(cuGraphClone(&raw mut clone, graph));
    let of_clone = nodes(clone)[0].1;
    assert_ne!(child(of_clone), child(node));
    assert_eq!(set_of(nodes(child(of_clone))[0].1).dst, second);
    let (gone, ready) = (child(node), executable(graph));
    ok!(cuGraphDestroy(graph));
    let mut count = 0;
    fails!(INVALID_VALUE, cuGraphGetNodes(gone, std::ptr::null_mut(), &raw mut count));
    ok!(cuGraphLaunch(ready, CUstream::NULL));
    assert_eq!((download(first, 1), download(second, 1)), (vec![0], vec![5]));
    ok!(cuCtxSetCurrent(here));
}

/// Has a graph of this work a fault if a block leaves the device between its instantiation and its
/// launch?
fn faults(work: impl FnOnce(CUdeviceptr, CUstream)) -> [CUresult; 2] {
    let (block, _) = mapped(UNIT);
    let graph = captured(|stream| work(block, stream));
    let launch = |ready| {
        ok!(cuGraphLaunch(ready, CUstream::NULL));
        // SAFETY: no pointer is passed.
        unsafe { cuCtxSynchronize() }
    };
    let ready = executable(graph);
    assert_eq!(launch(ready), CUresult::SUCCESS);
    ok!(cuMemUnmap(block, UNIT));
    let host = create(UNIT, CU_MEM_LOCATION_TYPE_HOST_NUMA, 0);
    ok!(cuMemMap(block, UNIT, 0, host, 0));
    let write = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    assert_eq!(access(block, UNIT, CU_MEM_LOCATION_TYPE_DEVICE, 0, write), CUresult::SUCCESS);
    [launch(executable(graph)), launch(ready)]
}

#[test]
fn a_copy_whose_memory_has_moved_is_a_fault() {
    start(&[]);
    let other = allocate(UNIT);
    let copied = faults(|block, stream| ok!(cuMemcpyDtoDAsync_v2(other, block, UNIT, stream)));
    assert_eq!(copied, [CUresult::SUCCESS, CUresult::ILLEGAL_ADDRESS]);
}

#[test]
fn a_memset_whose_memory_has_moved_is_a_fault() {
    start(&[]);
    let set = faults(|block, stream| ok!(cuMemsetD8Async(block, 1, UNIT, stream)));
    assert_eq!(set, [CUresult::SUCCESS, CUresult::ILLEGAL_ADDRESS]);
}

/// Kernels use addresses.
#[test]
fn a_kernel_whose_memory_has_moved_runs() {
    start(&[]);
    let filled = faults(|block, stream| assert_eq!(fill(block, 4, 1, stream), CUresult::SUCCESS));
    assert_eq!(filled, [CUresult::SUCCESS; 2]);
}
