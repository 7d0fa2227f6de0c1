//! What kind of write a function of the driver is, by its name. Decided when this is compiled.
//!
//! Invariant: a function that is not named here is foreign, so that a new one ends sharing and does no harm.

use crate::gate::Passage;

/// What a function does to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hooks) enum WriteKind {
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
    /// The same in the first version, which ends before a kernel that is named by its other handle.
    FirstKernelNode(usize),
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
pub(in crate::hooks) const fn kind(name: &str, meaning: Passage) -> WriteKind {
    use WriteKind::*;
    match meaning {
        Passage::Context => return Foreign,
        Passage::Keep(keeps) if !keeps.is_graph() => return Foreign,
        _ => {}
    }
    let mut at = 0;
    while at < KINDS.len() {
        if names(KINDS[at].1, name) {
            return KINDS[at].0;
        }
        at += 1;
    }
    Foreign
}

/// Whole names, for another version of a function may have other arguments. A function's per-thread twin has the same ones, and is not named.
const KINDS: &[(WriteKind, &[&str])] = {
    use WriteKind::*;
    &[
        (Load, &["cuMemcpyHtoD", "cuMemcpyHtoD_v2", "cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2"]),
        (CopyWithin, &["cuMemcpyDtoD", "cuMemcpyDtoD_v2", "cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2"]),
        (CopyUnified, &["cuMemcpy", "cuMemcpyAsync", "cuMemcpyWithAttributesAsync"]),
        (FromArray, &["cuMemcpyAtoD", "cuMemcpyAtoD_v2"]),
        (
            Reads,
            &[
                "cuMemcpyDtoA",
                "cuMemcpyDtoA_v2",
                "cuMemcpyDtoH",
                "cuMemcpyDtoH_v2",
                "cuMemcpyDtoHAsync",
                "cuMemcpyDtoHAsync_v2",
            ],
        ),
        (Batch, &["cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2"]),
        // Their first versions describe a copy in fewer bytes.
        (Rows, &["cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2", "cuMemcpy2DAsync_v2"]),
        (Volume, &["cuMemcpy3D_v2", "cuMemcpy3DAsync_v2"]),
        (Set(1), &["cuMemsetD8", "cuMemsetD8_v2", "cuMemsetD8Async"]),
        (Set(2), &["cuMemsetD16", "cuMemsetD16_v2", "cuMemsetD16Async"]),
        (Set(4), &["cuMemsetD32", "cuMemsetD32_v2", "cuMemsetD32Async"]),
        (SetRows(1), &["cuMemsetD2D8", "cuMemsetD2D8_v2", "cuMemsetD2D8Async"]),
        (SetRows(2), &["cuMemsetD2D16", "cuMemsetD2D16_v2", "cuMemsetD2D16Async"]),
        (SetRows(4), &["cuMemsetD2D32", "cuMemsetD2D32_v2", "cuMemsetD2D32Async"]),
        (
            Word,
            &[
                "cuStreamWriteValue32",
                "cuStreamWriteValue32_v2",
                "cuStreamWriteValue64",
                "cuStreamWriteValue64_v2",
            ],
        ),
        (Words, &["cuStreamBatchMemOp", "cuStreamBatchMemOp_v2"]),
        (Launch, &["cuLaunchKernel"]),
        (LaunchEx, &["cuLaunchKernelEx"]),
        (LaunchCooperative, &["cuLaunchCooperativeKernel"]),
        (GraphLaunch, &["cuGraphLaunch"]),
        (
            Instantiate,
            &[
                "cuGraphInstantiate",
                "cuGraphInstantiate_v2",
                "cuGraphInstantiateWithFlags",
                "cuGraphInstantiateWithParams",
            ],
        ),
        (Update, &["cuGraphExecUpdate", "cuGraphExecUpdate_v2"]),
        (GraphEnd, &["cuGraphDestroy"]),
        (ExecutableEnd, &["cuGraphExecDestroy"]),
        (FirstKernelNode(4), &["cuGraphAddKernelNode"]),
        (FirstKernelNode(1), &["cuGraphKernelNodeSetParams"]),
        (FirstKernelNode(2), &["cuGraphExecKernelNodeSetParams"]),
        (KernelNode(4), &["cuGraphAddKernelNode_v2"]),
        (KernelNode(1), &["cuGraphKernelNodeSetParams_v2"]),
        (KernelNode(2), &["cuGraphExecKernelNodeSetParams_v2"]),
        (VolumeNode(4), &["cuGraphAddMemcpyNode"]),
        (VolumeNode(1), &["cuGraphMemcpyNodeSetParams"]),
        (VolumeNode(2), &["cuGraphExecMemcpyNodeSetParams"]),
        (SetNode(4), &["cuGraphAddMemsetNode"]),
        (SetNode(1), &["cuGraphMemsetNodeSetParams"]),
        (SetNode(2), &["cuGraphExecMemsetNodeSetParams"]),
        (AnyNode(4), &["cuGraphAddNode"]),
        (AnyNode(5), &["cuGraphAddNode_v2"]),
        (AnyNode(1), &["cuGraphNodeSetParams"]),
        (AnyNode(2), &["cuGraphExecNodeSetParams"]),
        (
            OtherNode,
            &[
                "cuGraphAddChildGraphNode",
                "cuGraphExecChildGraphNodeSetParams",
                "cuGraphDestroyNode",
                "cuGraphNodeSetEnabled",
            ],
        ),
        (Nothing, HARMLESS),
    ]
};

/// They write no memory of the device.
const HARMLESS: &[&str] = &[
    "cuMemcpyHtoA",
    "cuMemcpyHtoA_v2",
    "cuMemcpyHtoAAsync",
    "cuMemcpyHtoAAsync_v2",
    "cuMemcpyAtoA",
    "cuMemcpyAtoA_v2",
    "cuMemcpyAtoH",
    "cuMemcpyAtoH_v2",
    "cuMemcpyAtoHAsync",
    "cuMemcpyAtoHAsync_v2",
    "cuLaunchHostFunc",
    "cuLaunchHostFunc_v2",
    "cuStreamAddCallback",
    "cuStreamWaitValue32",
    "cuStreamWaitValue32_v2",
    "cuStreamWaitValue64",
    "cuStreamWaitValue64_v2",
    "cuStreamBeginCapture",
    "cuStreamBeginCapture_v2",
    "cuStreamBeginCaptureToCig",
    "cuStreamBeginCaptureToGraph",
    "cuStreamBeginRecaptureToGraph",
    "cuGraphAddEmptyNode",
    "cuGraphAddEventRecordNode",
    "cuGraphAddEventWaitNode",
    "cuGraphAddHostNode",
    "cuGraphAddMemAllocNode",
    "cuGraphAddMemFreeNode",
    "cuGraphHostNodeSetParams",
    "cuGraphExecHostNodeSetParams",
    "cuGraphUpload",
    // They look at what is mapped.
    "cuMemAdvise",
    "cuMemAdvise_v2",
    "cuMemGetAccess",
    "cuMemGetAddressRange",
    "cuMemGetAddressRange_v2",
    "cuMemGetLocationInfo",
    "cuMemHostGetDevicePointer",
    "cuMemHostGetDevicePointer_v2",
    "cuMemHostGetFlags",
    "cuMemHostRegister",
    "cuMemHostRegister_v2",
    "cuMemRangeGetAttribute",
    "cuMemRangeGetAttributes",
    "cuMemRetainAllocationHandle",
    "cuPointerGetAttribute",
    "cuPointerGetAttributes",
    "cuTensorMapEncodeIm2col",
    "cuTensorMapEncodeIm2colWide",
    "cuTensorMapEncodeTiled",
    "cuTensorMapReplaceAddress",
    "cuTexObjectCreate",
    "cuTexRefSetAddress",
    "cuTexRefSetAddress_v2",
    "cuTexRefSetAddress2D",
    "cuTexRefSetAddress2D_v2",
    "cuTexRefSetAddress2D_v3",
];

/// Is the function one of these, or the per-thread twin of one?
const fn names(list: &[&str], name: &str) -> bool {
    let mut at = 0;
    while at < list.len() {
        let (one, name) = (list[at].as_bytes(), name.as_bytes());
        if begins(name, one) && (name.len() == one.len() || is_twins_end(name, one.len())) {
            return true;
        }
        at += 1;
    }
    false
}

const fn begins(name: &[u8], start: &[u8]) -> bool {
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

/// Does the name go on with the end of a per-thread twin, and with nothing else?
const fn is_twins_end(name: &[u8], at: usize) -> bool {
    name.len() == at + 5 && matches!(name.split_at(at).1, b"_ptsz" | b"_ptds")
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

    /// Hazard (out-of-bounds access): an old or a new version of a function has a shorter description than the one that is read.
    #[test]
    fn a_name_stands_for_no_other_version() {
        let pass = |name| kind(name, Passage::Pass);
        for name in ["cuMemcpy2D", "cuMemcpy2DAsync", "cuMemcpy2DUnaligned", "cuMemcpy3D", "cuMemcpy3DAsync"]
        {
            assert_eq!(pass(name), WriteKind::Foreign, "{name}");
        }
        assert_eq!(pass("cuMemcpy2DAsync_v2_ptsz"), WriteKind::Rows);
        assert_eq!(pass("cuMemcpyBatchAsync_v3"), WriteKind::Foreign);
        assert_eq!(pass("cuMemcpy2D_v3"), WriteKind::Foreign);
        assert_eq!(pass("cuMemGetSomethingNew"), WriteKind::Foreign);
        assert_eq!(pass("cuMemcpyBatchAsync_ptsz"), WriteKind::Batch);
        let node = |name| kind(name, Passage::Keep(crate::gate::Keeps::Graph));
        assert_eq!(node("cuGraphAddKernelNode"), WriteKind::FirstKernelNode(4));
        assert_eq!(node("cuGraphAddKernelNode_v2"), WriteKind::KernelNode(4));
    }
}
