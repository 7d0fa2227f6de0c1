//! Structures of textures, surfaces and graph nodes, which driver functions take by untyped
//! pointer.
//!
//! Layouts are those of CUDA 13.5's headers on 64-bit Linux; `tests/layout.rs` holds their sizes
//! and offsets.
#![allow(missing_docs, reason = "NVIDIA's fields, documented there")]

use std::ffi::{c_int, c_uint};

use crate::{
    CUDA_MEMCPY3D, CUarray, CUcontext, CUdeviceptr, CUgraph, CUmemAccessDesc, CUmemPoolProps,
    CUmipmappedArray,
};

/// The memory of a texture or surface: a kind, and the part of [`CUresource`] for that kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUDA_RESOURCE_DESC {
    pub resType: c_uint,
    pub res: CUresource,
    pub flags: c_uint,
}

/// The parts of a [`CUDA_RESOURCE_DESC`], by `CU_RESOURCE_TYPE_*`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union CUresource {
    pub array: CUarray,
    pub mipmap: CUmipmappedArray,
    pub linear: CUresourceLinear,
    pub pitch2D: CUresourcePitch2D,
    pub reserved: [c_int; 32],
}

/// A row of texels at an address. The size is bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUresourceLinear {
    pub devPtr: CUdeviceptr,
    pub format: c_uint,
    pub numChannels: c_uint,
    pub sizeInBytes: usize,
}

/// Rows of texels at an address. Width and height are texels.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUresourcePitch2D {
    pub devPtr: CUdeviceptr,
    pub format: c_uint,
    pub numChannels: c_uint,
    pub width: usize,
    pub height: usize,
    pub pitchInBytes: usize,
}

impl CUDA_RESOURCE_DESC {
    /// A description of a kind, without content.
    pub const fn empty(kind: c_uint) -> Self {
        Self { resType: kind, res: CUresource { reserved: [0; 32] }, flags: 0 }
    }
}

impl std::fmt::Debug for CUDA_RESOURCE_DESC {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CUDA_RESOURCE_DESC").field("resType", &self.resType).finish_non_exhaustive()
    }
}

/// How a texture is read.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct CUDA_TEXTURE_DESC {
    pub addressMode: [c_uint; 3],
    pub filterMode: c_uint,
    pub flags: c_uint,
    pub maxAnisotropy: c_uint,
    pub mipmapFilterMode: c_uint,
    pub mipmapLevelBias: f32,
    pub minMipmapLevelClamp: f32,
    pub maxMipmapLevelClamp: f32,
    pub borderColor: [f32; 4],
    pub reserved: [c_int; 12],
}

/// An allocation node of a graph. The driver writes the address.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_MEM_ALLOC_NODE_PARAMS {
    pub poolProps: CUmemPoolProps,
    pub accessDescs: *const CUmemAccessDesc,
    pub accessDescCount: usize,
    pub bytesize: usize,
    pub dptr: CUdeviceptr,
}

/// A copy as a node of any kind names it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_MEMCPY_NODE_PARAMS {
    pub flags: c_int,
    pub reserved: c_int,
    pub copyCtx: CUcontext,
    pub copyParams: CUDA_MEMCPY3D,
}

/// A memset as a node of any kind names it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_MEMSET_NODE_PARAMS_v2 {
    pub dst: CUdeviceptr,
    pub pitch: usize,
    pub value: c_uint,
    pub elementSize: c_uint,
    pub width: usize,
    pub height: usize,
    pub ctx: CUcontext,
}

/// A node of any kind: a kind, and the part of [`CUgraphNodeBody`] for that kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUgraphNodeParams {
    pub type_: c_uint,
    pub reserved0: [c_int; 3],
    pub body: CUgraphNodeBody,
    pub reserved2: i64,
}

/// The parts of a [`CUgraphNodeParams`] that concern memory, by `CU_GRAPH_NODE_TYPE_*`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union CUgraphNodeBody {
    pub reserved1: [i64; 29],
    pub memcpy: CUDA_MEMCPY_NODE_PARAMS,
    pub memset: CUDA_MEMSET_NODE_PARAMS_v2,
    pub alloc: CUDA_MEM_ALLOC_NODE_PARAMS,
    pub free: CUdeviceptr,
    pub graph: CUgraph,
}

impl CUgraphNodeParams {
    /// A node of a kind, without content.
    pub const fn empty(kind: c_uint) -> Self {
        Self { type_: kind, reserved0: [0; 3], body: CUgraphNodeBody { reserved1: [0; 29] }, reserved2: 0 }
    }
}

impl std::fmt::Debug for CUgraphNodeParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CUgraphNodeParams").field("type_", &self.type_).finish_non_exhaustive()
    }
}
