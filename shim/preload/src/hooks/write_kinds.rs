//! What kind of write a function of the driver is, by its name. Decided when this is compiled.
//!
//! Invariant: a function that is not named here is foreign, so that a new one ends sharing and does no harm.

use crate::gate::Passage;

/// What a function does to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteKind {
    /// It uses no memory of the device that could be shared.
    Nothing,
    /// It reads such memory.
    Reads,
    /// `(to, from, bytes)`: from the host, within the device, or told by addresses.
    Load,
    CopyWithin,
    CopyUnified,
    /// `(to, array, offset, bytes)`.
    FromArray,
    /// `(to, value, count)` of elements of so many bytes.
    Set(u64),
    /// `(to, pitch, value, width, height)` of elements of so many bytes.
    SetRows(u64),
    /// A description of a copy.
    Rows,
    Volume,
    /// Arrays of destinations, sources and sizes, and their count.
    Batch,
    /// `(stream, address, value, flags)`.
    Word,
    /// `(stream, count, operations, flags)`.
    Words,
    /// A kernel, and where its function, arguments and stream are.
    Launch,
    LaunchCooperative,
    LaunchEx,
    GraphLaunch,
    /// A graph's node, whose description is the argument of this number.
    KernelNode(usize),
    VolumeNode(usize),
    SetNode(usize),
    /// The same, of a node whose kind is told with it.
    AnyNode(usize),
    /// `(place of an executable graph, graph)`.
    Instantiate,
    /// `(executable graph, graph)`.
    Update,
    /// A node of another kind, which may have kernels or stand for some.
    OtherNode,
    /// `(graph)`, which ends, and `(executable graph)`, which does.
    GraphEnd,
    ExecutableEnd,
    /// Sharing does not go with it.
    Foreign,
}

/// By the function's name and what it means at the gate.
pub(super) const fn kind(name: &str, meaning: Passage) -> WriteKind {
    use WriteKind::*;
    match meaning {
        Passage::Context => return Foreign,
        Passage::Keep(keeps) if !keeps.is_graph() => return Foreign,
        _ => {}
    }
    // Looked up in this order: a name stands for all functions whose names begin with it.
    const KINDS: &[(&str, WriteKind)] = &[
        ("cuMemcpyHtoA", Nothing),
        ("cuMemcpyHtoD", Load),
        ("cuMemcpyDtoDAsync", CopyWithin),
        ("cuMemcpyDtoD", CopyWithin),
        ("cuMemcpyDto", Reads),
        ("cuMemcpyAtoD", FromArray),
        ("cuMemcpyAto", Nothing),
        ("cuMemcpyBatchAsync", Batch),
        ("cuMemcpy2D", Rows),
        ("cuMemcpy3DBatch", Foreign),
        ("cuMemcpy3DWith", Foreign),
        ("cuMemcpy3D", Volume),
        ("cuMemcpyAsync", CopyUnified),
        ("cuMemcpy", CopyUnified),
        ("cuMemsetD2D32", SetRows(4)),
        ("cuMemsetD2D16", SetRows(2)),
        ("cuMemsetD2D8", SetRows(1)),
        ("cuMemsetD32", Set(4)),
        ("cuMemsetD16", Set(2)),
        ("cuMemsetD8", Set(1)),
        ("cuStreamWriteValue", Word),
        ("cuStreamBatchMemOp", Words),
        ("cuStreamWaitValue", Nothing),
        ("cuStreamBeginCapture", Nothing),
        ("cuStreamBeginRecapture", Nothing),
        ("cuStreamAddCallback", Nothing),
        ("cuLaunchHostFunc", Nothing),
        ("cuLaunchKernelEx", LaunchEx),
        ("cuLaunchKernel", Launch),
        ("cuLaunchCooperativeKernelMultiDevice", Foreign),
        ("cuLaunchCooperativeKernel", LaunchCooperative),
        ("cuGraphLaunch", GraphLaunch),
        ("cuGraphUpload", Nothing),
        ("cuGraphInstantiate", Instantiate),
        ("cuGraphExecUpdate", Update),
        ("cuGraphExecDestroy", ExecutableEnd),
        ("cuGraphDestroyNode", OtherNode),
        ("cuGraphNodeSetEnabled", OtherNode),
        ("cuGraphDestroy", GraphEnd),
        ("cuGraphAddKernelNode", KernelNode(4)),
        ("cuGraphKernelNodeSetParams", KernelNode(1)),
        ("cuGraphExecKernelNodeSetParams", KernelNode(2)),
        ("cuGraphAddMemcpyNode", VolumeNode(4)),
        ("cuGraphMemcpyNodeSetParams", VolumeNode(1)),
        ("cuGraphExecMemcpyNodeSetParams", VolumeNode(2)),
        ("cuGraphAddMemsetNode", SetNode(4)),
        ("cuGraphMemsetNodeSetParams", SetNode(1)),
        ("cuGraphExecMemsetNodeSetParams", SetNode(2)),
        ("cuGraphAddChildGraphNode", OtherNode),
        ("cuGraphAddEmptyNode", Nothing),
        ("cuGraphAddEventRecordNode", Nothing),
        ("cuGraphAddEventWaitNode", Nothing),
        ("cuGraphAddHostNode", Nothing),
        ("cuGraphAddMemAllocNode", Nothing),
        ("cuGraphAddMemFreeNode", Nothing),
        ("cuGraphHostNodeSetParams", Nothing),
        ("cuGraphExecHostNodeSetParams", Nothing),
        ("cuGraphExecChildGraphNodeSetParams", OtherNode),
        // They look at what is mapped.
        ("cuMemAdvise", Nothing),
        ("cuMemGet", Nothing),
        ("cuMemHost", Nothing),
        ("cuMemRangeGet", Nothing),
        ("cuMemRetainAllocationHandle", Nothing),
        ("cuPointerGet", Nothing),
        ("cuTensorMap", Nothing),
        ("cuTexObjectCreate", Nothing),
        ("cuTexRefSet", Nothing),
    ];
    // Whole names, for later versions of them have other arguments.
    const WHOLE: &[(&str, WriteKind)] = &[
        ("cuGraphAddNode", AnyNode(4)),
        ("cuGraphAddNode_v2", AnyNode(5)),
        ("cuGraphNodeSetParams", AnyNode(1)),
        ("cuGraphExecNodeSetParams", AnyNode(2)),
    ];
    let mut at = 0;
    while at < WHOLE.len() {
        if name.len() == WHOLE[at].0.len() && begins(name, WHOLE[at].0) {
            return WHOLE[at].1;
        }
        at += 1;
    }
    at = 0;
    while at < KINDS.len() {
        if begins(name, KINDS[at].0) {
            return KINDS[at].1;
        }
        at += 1;
    }
    Foreign
}

const fn begins(name: &str, start: &str) -> bool {
    let (name, start) = (name.as_bytes(), start.as_bytes());
    if name.len() < start.len() {
        return false;
    }
    let mut at = 0;
    while at < start.len() {
        if name[at] != start[at] {
            return false;
        }
        at += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    //! Hazard: a call writes shared memory that is taken for one that does not.
    use super::*;

    #[test]
    fn what_is_not_known_ends_sharing_and_what_shares_memory_does_too() {
        use crate::gate::Keeps;
        assert_eq!(kind("cuMemPrefetchAsync_v2", Passage::Pass), WriteKind::Foreign);
        assert_eq!(kind("cuSomethingNewAsync", Passage::Pass), WriteKind::Foreign);
        assert_eq!(kind("cuIpcGetMemHandle", Passage::Keep(Keeps::Shared)), WriteKind::Foreign);
        assert_eq!(kind("cuCtxCreate_v4", Passage::Context), WriteKind::Foreign);
        assert_eq!(kind("cuMemcpyDtoDAsync_v2_ptsz", Passage::Pass), WriteKind::CopyWithin);
        assert_eq!(kind("cuMemcpyDtoHAsync_v2", Passage::Pass), WriteKind::Reads);
        assert_eq!(kind("cuMemsetD2D32Async", Passage::Pass), WriteKind::SetRows(4));
        let node = |name| kind(name, Passage::Keep(Keeps::Graph));
        assert_eq!(
            (node("cuGraphAddNode"), node("cuGraphAddNode_v2")),
            (WriteKind::AnyNode(4), WriteKind::AnyNode(5))
        );
        assert_eq!(
            (node("cuGraphAddNode_v3"), node("cuGraphNodeSetParams_v2")),
            (WriteKind::Foreign, WriteKind::Foreign)
        );
        assert_eq!(node("cuGraphExecNodeSetParams"), WriteKind::AnyNode(2));
    }
}
