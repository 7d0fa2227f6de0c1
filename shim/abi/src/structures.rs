//! Structures that driver functions read and write, field by field.
//!
//! Layouts are those of CUDA 13.5's headers on 64-bit Linux; `tests/layout.rs` holds their sizes
//! and offsets.
#![allow(missing_docs, reason = "NVIDIA's fields, documented there")]

use std::ffi::{c_int, c_uint, c_ushort, c_void};

use crate::{CUarray, CUcontext, CUdeviceptr, CUfunction, CUkernel, CUstream};

/// Where memory lives: a device, a NUMA node, ... by `CU_MEM_LOCATION_TYPE_*`.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CUmemLocation {
    pub type_: c_uint,
    pub id: c_int,
}

/// Rights of one location to a mapping.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CUmemAccessDesc {
    pub location: CUmemLocation,
    pub flags: c_uint,
}

/// The trailing part of [`CUmemAllocationProp`].
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CUmemAllocationFlags {
    pub compressionType: u8,
    pub gpuDirectRDMACapable: u8,
    pub usage: c_ushort,
    pub reserved: [u8; 4],
}

/// The arguments of `cuCheckpointProcessLock`.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CUcheckpointLockArgs {
    /// 0 for no limit.
    pub timeoutMs: c_uint,
    pub reserved0: c_uint,
    pub reserved1: [u64; 7],
}

/// The arguments of `cuMemCreate`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUmemAllocationProp {
    pub type_: c_uint,
    pub requestedHandleTypes: c_uint,
    pub location: CUmemLocation,
    pub win32HandleMetaData: *mut c_void,
    pub allocFlags: CUmemAllocationFlags,
}

/// The arguments of `cuMemPoolCreate`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUmemPoolProps {
    pub allocType: c_uint,
    pub handleTypes: c_uint,
    pub location: CUmemLocation,
    pub win32SecurityAttributes: *mut c_void,
    pub maxSize: usize,
    pub usage: c_ushort,
    pub gpuDirectRDMACapable: u8,
    pub reserved: [u8; 53],
}

/// A pointer of an exported pool.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUmemPoolPtrExportData {
    pub reserved: [u8; 64],
}

/// Hints for one copy of a batch.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub struct CUmemcpyAttributes {
    pub srcAccessOrder: c_uint,
    pub srcLocHint: CUmemLocation,
    pub dstLocHint: CUmemLocation,
    pub flags: c_uint,
}

/// A one- or two-dimensional array. Sizes in elements.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CUDA_ARRAY_DESCRIPTOR {
    pub Width: usize,
    pub Height: usize,
    pub Format: c_uint,
    pub NumChannels: c_uint,
}

/// A three-dimensional array. Sizes in elements.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CUDA_ARRAY3D_DESCRIPTOR {
    pub Width: usize,
    pub Height: usize,
    pub Depth: usize,
    pub Format: c_uint,
    pub NumChannels: c_uint,
    pub Flags: c_uint,
}

/// A two-dimensional copy (`CUDA_MEMCPY2D_v2`). Pitches and widths are bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_MEMCPY2D {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcMemoryType: c_uint,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub srcPitch: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstMemoryType: c_uint,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub dstPitch: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
}

/// A three-dimensional copy (`CUDA_MEMCPY3D_v2`).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_MEMCPY3D {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcZ: usize,
    pub srcLOD: usize,
    pub srcMemoryType: c_uint,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub reserved0: *mut c_void,
    pub srcPitch: usize,
    pub srcHeight: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstZ: usize,
    pub dstLOD: usize,
    pub dstMemoryType: c_uint,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub reserved1: *mut c_void,
    pub dstPitch: usize,
    pub dstHeight: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
    pub Depth: usize,
}

/// A three-dimensional copy between contexts.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_MEMCPY3D_PEER {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcZ: usize,
    pub srcLOD: usize,
    pub srcMemoryType: c_uint,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub srcContext: CUcontext,
    pub srcPitch: usize,
    pub srcHeight: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstZ: usize,
    pub dstLOD: usize,
    pub dstMemoryType: c_uint,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub dstContext: CUcontext,
    pub dstPitch: usize,
    pub dstHeight: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
    pub Depth: usize,
}

/// One end of a [`CUDA_MEMCPY3D_BATCH_OP`] that is a pointer; an array has other fields in the same
/// place. Lengths are bytes and rows.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub struct CUmemcpy3DOperand {
    pub type_: c_uint,
    pub ptr: CUdeviceptr,
    pub rowLength: usize,
    pub layerHeight: usize,
    pub locHint: CUmemLocation,
}

/// A three-dimensional copy of a batch.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub struct CUDA_MEMCPY3D_BATCH_OP {
    pub src: CUmemcpy3DOperand,
    pub dst: CUmemcpy3DOperand,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub srcAccessOrder: c_uint,
    pub flags: c_uint,
}

/// A memset node of a graph.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_MEMSET_NODE_PARAMS {
    pub dst: CUdeviceptr,
    pub pitch: usize,
    pub value: c_uint,
    pub elementSize: c_uint,
    pub width: usize,
    pub height: usize,
}

/// A kernel node of a graph (`CUDA_KERNEL_NODE_PARAMS_v2`).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_KERNEL_NODE_PARAMS {
    pub func: CUfunction,
    pub gridDimX: c_uint,
    pub gridDimY: c_uint,
    pub gridDimZ: c_uint,
    pub blockDimX: c_uint,
    pub blockDimY: c_uint,
    pub blockDimZ: c_uint,
    pub sharedMemBytes: c_uint,
    pub kernelParams: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kern: CUkernel,
    pub ctx: CUcontext,
}

/// A launch with attributes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUlaunchConfig {
    pub gridDimX: c_uint,
    pub gridDimY: c_uint,
    pub gridDimZ: c_uint,
    pub blockDimX: c_uint,
    pub blockDimY: c_uint,
    pub blockDimZ: c_uint,
    pub sharedMemBytes: c_uint,
    pub hStream: CUstream,
    /// `CUlaunchAttribute`s of 72 bytes; we use none of them.
    pub attrs: *mut c_void,
    pub numAttrs: c_uint,
}

/// Tokens of GPUDirect, long superseded.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub struct CUDA_POINTER_ATTRIBUTE_P2P_TOKENS {
    pub p2pToken: u64,
    pub vaSpaceToken: c_uint,
}

/// Memory of another process, passed by value.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUipcMemHandle {
    pub reserved: [u8; 64],
}

/// An event of another process, passed by value.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUipcEventHandle {
    pub reserved: [u8; 64],
}

/// A device's identity.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CUuuid {
    pub bytes: [u8; 16],
}

/// As NVIDIA's tools write it after `GPU-` or `MIG-`: `8f3c0a1e-...`.
impl std::fmt::Display for CUuuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, byte) in self.bytes.iter().enumerate() {
            let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}
