//! The calls that pass the gate while `WMSHIM_MIGRATE` is on: those that submit work, look at what is mapped, or rely on it from then on.
//!
//! Each has an entry here that passes the gate and then calls what would be in the slot otherwise: the entry of the function's row, or the real function. So hooked
//! calls pass before their handlers ask for anything, as copies do for borders, and with the setting off nothing is here.
//!
//! What does not pass is in `outside.txt`, function by function; the test below demands that each function of the driver is in one of the two. Events pass in neither
//! direction: they touch no memory, and the most that one which is recorded late can do is that a device does not look settled. What waits for the GPU
//! does not pass: it would keep movers out, and submits nothing.

use wm_abi::symbol::{self, Symbol};

use crate::gate;

/// A function that passes.
struct Gated {
    index: usize,
    entry: *const (),
    /// Sets what the entry calls.
    lead_to: fn(*const ()),
}

// SAFETY: functions' addresses.
unsafe impl Sync for Gated {}

/// Declares them by what their call means.
macro_rules! gated {
    ($($meaning:expr => $($name:ident),+;)*) => {
        #[allow(non_upper_case_globals, reason = "named after the driver's functions")]
        mod next {
            use wm_abi::symbol;

            use crate::process::CachedFn;

            $($(pub(super) static $name: CachedFn<symbol::$name> = CachedFn::new();)+)*
        }

        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's functions")]
        mod entry {
            use std::ffi::{c_char, c_int, c_uint, c_void};

            use wm_abi::symbol::{self, Symbol};
            use wm_abi::*;

            use crate::dedup::program;
            use crate::gate::{self, Keeps::*, Passage::*};
            use crate::hooks::gated::next;
            use crate::hooks::call::stream::{is_per_thread, note_per_thread};
            use crate::hooks::work::write_kinds::{self, WriteKind};
            use crate::hooks::work::writes;

            $($(wm_abi::with_parameters!($name => gated_entry!($name, $meaning));)+)*
        }

        static GATED: &[Gated] = &[
            $($(Gated {
                index: <symbol::$name as Symbol>::INDEX,
                entry: entry::$name as *const (),
                lead_to: |next| next::$name.replace(next),
            },)+)*
        ];
    };
}

macro_rules! gated_entry {
    (($($argument:ident: $type:ty),*) $name:ident, $meaning:expr) => {
        pub(super) unsafe extern "C" fn $name($($argument: $type),*) -> CUresult {
            note_per_thread(const { is_per_thread(stringify!($name)) });
            gate::pass($meaning, || {
                const KIND: WriteKind = write_kinds::kind(stringify!($name), $meaning);
                if program::is_on() && !matches!(KIND, WriteKind::Nothing) {
                    // SAFETY: the program's arguments, for the function that it called.
                    unsafe { writes::look(stringify!($name), KIND, &[$(writes::word(&$argument)),*]) };
                }
                // SAFETY: the same.
                let result = unsafe { next::$name.get()($($argument),*) };
                if matches!(KIND, WriteKind::Instantiate | WriteKind::Update) && program::is_on() {
                    // SAFETY: the same, and they were written to.
                    unsafe { writes::look_after(KIND, result, &[$(writes::word(&$argument)),*]) };
                }
                result
            })
        }
        const _: <symbol::$name as Symbol>::Function = $name;
    };
}

/// What a function's slot is to lead to, where it would lead to `next` without a gate.
pub(super) fn around(index: usize, next: *const ()) -> *const () {
    let gated = gate::is_on().then(|| GATED.iter().find(|gated| gated.index == index)).flatten();
    gated.map_or(next, |gated| {
        (gated.lead_to)(next);
        gated.entry
    })
}

gated! {
    // They submit work.
    Pass =>
        cuFabricCpyBatchAsync, cuFabricCpyBatchAsync_ptsz, cuGraphicsMapResources, cuGraphicsMapResources_ptsz,
        cuGraphicsUnmapResources, cuGraphicsUnmapResources_ptsz, cuLaunch, cuLaunchCooperativeKernel,
        cuLaunchCooperativeKernelMultiDevice, cuLaunchCooperativeKernel_ptsz, cuLaunchGrid, cuLaunchGridAsync,
        cuLaunchHostFunc, cuLaunchHostFunc_ptsz, cuLaunchHostFunc_v2, cuLaunchHostFunc_v2_ptsz, cuLaunchKernel,
        cuLaunchKernelEx, cuLaunchKernelEx_ptsz, cuLaunchKernel_ptsz, cuMemBatchDecompressAsync,
        cuMemBatchDecompressAsync_ptsz, cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync_ptsz,
        cuMemDiscardBatchAsync, cuMemDiscardBatchAsync_ptsz, cuMemMapArrayAsync, cuMemMapArrayAsync_ptsz,
        cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz, cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz,
        cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync_ptsz, cuMemcpy, cuMemcpy2D, cuMemcpy2DAsync,
        cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz, cuMemcpy2DUnaligned, cuMemcpy2DUnaligned_v2,
        cuMemcpy2DUnaligned_v2_ptds, cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, cuMemcpy3D, cuMemcpy3DAsync,
        cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz, cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_ptsz,
        cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync_v2_ptsz, cuMemcpy3DWithAttributesAsync,
        cuMemcpy3DWithAttributesAsync_ptsz, cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, cuMemcpyAsync, cuMemcpyAsync_ptsz,
        cuMemcpyAtoA, cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds, cuMemcpyAtoD, cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds,
        cuMemcpyAtoH, cuMemcpyAtoHAsync, cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz, cuMemcpyAtoH_v2,
        cuMemcpyAtoH_v2_ptds, cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz, cuMemcpyBatchAsync_v2,
        cuMemcpyBatchAsync_v2_ptsz, cuMemcpyDtoA, cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds, cuMemcpyDtoD,
        cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds,
        cuMemcpyDtoH, cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoH_v2,
        cuMemcpyDtoH_v2_ptds, cuMemcpyHtoA, cuMemcpyHtoAAsync, cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz,
        cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds, cuMemcpyHtoD, cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2,
        cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds, cuMemcpyWithAttributesAsync,
        cuMemcpyWithAttributesAsync_ptsz, cuMemcpy_ptds, cuMemsetD16, cuMemsetD16Async, cuMemsetD16Async_ptsz,
        cuMemsetD16_v2, cuMemsetD16_v2_ptds, cuMemsetD2D16, cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz,
        cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds, cuMemsetD2D32, cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz,
        cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds, cuMemsetD2D8, cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz,
        cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds, cuMemsetD32, cuMemsetD32Async, cuMemsetD32Async_ptsz, cuMemsetD32_v2,
        cuMemsetD32_v2_ptds, cuMemsetD8, cuMemsetD8Async, cuMemsetD8Async_ptsz, cuMemsetD8_v2, cuMemsetD8_v2_ptds,
        cuSignalExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync_ptsz, cuStreamAddCallback,
        cuStreamAddCallback_ptsz, cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz, cuStreamBatchMemOp,
        cuStreamBatchMemOp_ptsz, cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz, cuStreamWaitValue32,
        cuStreamWaitValue32_ptsz, cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz, cuStreamWaitValue64,
        cuStreamWaitValue64_ptsz, cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz, cuStreamWriteValue32,
        cuStreamWriteValue32_ptsz, cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz, cuStreamWriteValue64,
        cuStreamWriteValue64_ptsz, cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz,
        cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync_ptsz;
    // They look at what is mapped, and would find nothing while it is exchanged.
    Pass =>
        cuMemAdvise, cuMemAdvise_v2, cuMemGetAccess, cuMemGetAddressRange, cuMemGetAddressRange_v2,
        cuMemGetLocationInfo, cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, cuMemHostGetFlags,
        cuMemHostRegister, cuMemHostRegister_v2, cuMemRangeGetAttribute, cuMemRangeGetAttributes,
        cuMemRetainAllocationHandle, cuPointerGetAttribute, cuPointerGetAttributes, cuSurfObjectCreate,
        cuTensorMapEncodeIm2col, cuTensorMapEncodeIm2colWide, cuTensorMapEncodeTiled, cuTensorMapReplaceAddress,
        cuTexObjectCreate, cuTexRefSetAddress, cuTexRefSetAddress2D, cuTexRefSetAddress2D_v2, cuTexRefSetAddress2D_v3,
        cuTexRefSetAddress_v2;
    Keep(Graph) =>
        cuGraphAddBatchMemOpNode, cuGraphAddChildGraphNode, cuGraphAddEmptyNode, cuGraphAddEventRecordNode,
        cuGraphAddEventWaitNode, cuGraphAddExternalSemaphoresSignalNode, cuGraphAddExternalSemaphoresWaitNode,
        cuGraphAddHostNode, cuGraphAddKernelNode, cuGraphAddKernelNode_v2, cuGraphAddMemAllocNode,
        cuGraphAddMemFreeNode, cuGraphAddMemcpyNode, cuGraphAddMemsetNode, cuGraphAddNode, cuGraphAddNode_v2,
        cuGraphAddNode_v3, cuGraphBatchMemOpNodeSetParams, cuGraphExecBatchMemOpNodeSetParams,
        cuGraphDestroy, cuGraphDestroyNode, cuGraphExecChildGraphNodeSetParams, cuGraphExecDestroy,
        cuGraphExecExternalSemaphoresSignalNodeSetParams,
        cuGraphExecExternalSemaphoresWaitNodeSetParams, cuGraphExecHostNodeSetParams, cuGraphExecKernelNodeSetParams,
        cuGraphExecKernelNodeSetParams_v2, cuGraphExecMemcpyNodeSetParams, cuGraphExecMemsetNodeSetParams,
        cuGraphExecNodeSetParams, cuGraphExecUpdate, cuGraphExecUpdate_v2,
        cuGraphExternalSemaphoresSignalNodeSetParams, cuGraphExternalSemaphoresWaitNodeSetParams,
        cuGraphHostNodeSetParams, cuGraphInstantiate, cuGraphInstantiateWithFlags, cuGraphInstantiateWithParams,
        cuGraphInstantiateWithParams_ptsz, cuGraphInstantiate_v2, cuGraphKernelNodeSetParams,
        cuGraphKernelNodeSetParams_v2, cuGraphLaunch, cuGraphLaunch_ptsz, cuGraphMemcpyNodeSetParams,
        cuGraphMemsetNodeSetParams, cuGraphNodeSetEnabled, cuGraphNodeSetParams, cuGraphNodeSetParams_v2, cuGraphUpload, cuGraphUpload_ptsz,
        cuStreamBeginCapture, cuStreamBeginCaptureToCig, cuStreamBeginCaptureToCig_ptsz, cuStreamBeginCaptureToGraph,
        cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCapture_ptsz, cuStreamBeginCapture_v2,
        cuStreamBeginCapture_v2_ptsz, cuStreamBeginRecaptureToGraph, cuStreamBeginRecaptureToGraph_ptsz;
    Keep(Shared) =>
        cuEGLStreamProducerPresentFrame, cuIpcGetMemHandle, cuLogicalEndpointBindAddr, cuMemGetHandleForAddressRange,
        cuMemPoolExportPointer, cuMulticastBindAddr, cuMulticastBindAddr_v2;
    Keep(SyncMemops) =>
        cuPointerSetAttribute;
    Keep(Peer) =>
        cuCtxEnablePeerAccess, cuMemPoolSetAccess, cuMemcpy3DPeer, cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz,
        cuMemcpy3DPeer_ptds, cuMemcpyPeer, cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz, cuMemcpyPeer_ptds;
    Keep(GreenContext) =>
        cuCtxFromGreenCtx, cuGreenCtxCreate, cuGreenCtxStreamCreate;
    Context =>
        cuCtxCreate, cuCtxCreate_v2, cuCtxCreate_v3, cuCtxCreate_v4, cuGLCtxCreate, cuGLCtxCreate_v2,
        cuVDPAUCtxCreate, cuVDPAUCtxCreate_v2;
}

#[cfg(test)]
mod tests {
    //! Hazard: a function of a new driver submits work while memory moves, because nobody thought of it.
    use std::collections::BTreeSet;

    use super::*;

    fn name(index: usize) -> &'static str {
        symbol::NAMES[index].to_str().expect("a name")
    }

    #[test]
    fn every_function_passes_the_gate_or_is_known_not_to() {
        let listed =
            include_str!("outside.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let outside: BTreeSet<&str> = listed.clone().collect();
        assert_eq!(outside.len(), listed.count(), "a function is listed twice");
        let inside: BTreeSet<&str> = GATED.iter().map(|gated| name(gated.index)).collect();
        let both: Vec<_> = inside.intersection(&outside).collect();
        assert!(both.is_empty(), "{both:?}");
        let all: BTreeSet<&str> = (0..symbol::COUNT).map(name).collect();
        let known: BTreeSet<&str> = inside.union(&outside).copied().collect();
        let missing: Vec<_> = all.symmetric_difference(&known).collect();
        assert!(missing.is_empty(), "in `gated!` or outside.txt: {missing:?}");
    }

    /// By what names say, so that a mistake in either list shows.
    #[test]
    fn what_is_called_a_launch_a_copy_or_a_set_passes() {
        let inside: BTreeSet<&str> = GATED.iter().map(|gated| name(gated.index)).collect();
        let submits =
            ["cuLaunch", "cuMemcpy", "cuMemset", "cuGraphLaunch", "cuStreamWriteValue", "cuStreamBatchMemOp"];
        let named =
            (0..symbol::COUNT).map(name).filter(|name| submits.iter().any(|start| name.starts_with(start)));
        let missing: Vec<_> = named.filter(|name| !inside.contains(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
