//! Hazard (out-of-bounds access): a structure that is not laid out as the driver's corrupts the
//! caller's memory. The figures are `sizeof` and `offsetof` of CUDA 13.5's headers, compiled by
//! gcc on x86-64 Linux.

use std::mem::{offset_of, size_of};

use wm_abi::*;

macro_rules! sizes {
    ($($type:ty = $size:literal,)*) => { $(assert_eq!(size_of::<$type>(), $size, stringify!($type));)* };
}

#[test]
fn sizes_are_the_drivers() {
    sizes! {
        CUDA_ARRAY_DESCRIPTOR = 24,
        CUDA_ARRAY3D_DESCRIPTOR = 40,
        CUDA_KERNEL_NODE_PARAMS = 72,
        CUDA_MEMCPY2D = 128,
        CUDA_MEMCPY3D = 200,
        CUDA_MEMCPY3D_BATCH_OP = 112,
        CUDA_MEMCPY3D_PEER = 200,
        CUDA_MEM_ALLOC_NODE_PARAMS = 120,
        CUDA_MEMCPY_NODE_PARAMS = 216,
        CUDA_MEMSET_NODE_PARAMS = 40,
        CUDA_MEMSET_NODE_PARAMS_v2 = 48,
        CUDA_POINTER_ATTRIBUTE_P2P_TOKENS = 16,
        CUDA_RESOURCE_DESC = 144,
        CUDA_TEXTURE_DESC = 104,
        CUcheckpointLockArgs = 64,
        CUgraphNodeParams = 256,
        CUipcEventHandle = 64,
        CUipcMemHandle = 64,
        CUlaunchConfig = 56,
        CUmemAccessDesc = 12,
        CUmemAllocationProp = 32,
        CUmemcpy3DOperand = 40,
        CUmemcpyAttributes = 24,
        CUmemLocation = 8,
        CUmemPoolProps = 88,
        CUmemPoolPtrExportData = 64,
        CUuuid = 16,
    }
}

#[test]
fn offsets_are_the_drivers() {
    assert_eq!(offset_of!(CUmemAllocationProp, allocFlags), 24);
    assert_eq!(offset_of!(CUmemPoolProps, maxSize), 24);
    assert_eq!(offset_of!(CUmemPoolProps, gpuDirectRDMACapable), 34);
    assert_eq!(offset_of!(CUlaunchConfig, hStream), 32);
    assert_eq!(offset_of!(CUlaunchConfig, numAttrs), 48);
    assert_eq!(offset_of!(CUDA_MEMCPY2D, dstHost), 80);
    assert_eq!(offset_of!(CUDA_MEMCPY3D, dstHost), 128);
    assert_eq!(offset_of!(CUDA_KERNEL_NODE_PARAMS, kern), 56);
    assert_eq!(offset_of!(CUDA_RESOURCE_DESC, flags), 136);
    assert_eq!(offset_of!(CUresourcePitch2D, pitchInBytes), 32);
    assert_eq!(offset_of!(CUDA_TEXTURE_DESC, borderColor), 40);
    assert_eq!(offset_of!(CUDA_MEM_ALLOC_NODE_PARAMS, dptr), 112);
    assert_eq!(offset_of!(CUgraphNodeParams, body), 16);
    assert_eq!(offset_of!(CUDA_MEMCPY_NODE_PARAMS, copyParams), 16);
}

#[test]
fn symbols_are_sorted_and_found_by_name() {
    assert!(symbol::NAMES.is_sorted());
    assert_eq!(symbol::index(c"cuMemAlloc_v2"), Some(<symbol::cuMemAlloc_v2 as symbol::Symbol>::INDEX));
    assert_eq!(symbol::index(c"cuNoSuchFunction"), None);
}
