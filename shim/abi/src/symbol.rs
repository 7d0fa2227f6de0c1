//! Every exported driver function as a type.
//!
//! `symbol::cuMemAlloc_v2::INDEX` is the function's position in any table of driver functions, and
//! `<symbol::cuMemAlloc_v2 as Symbol>::Function` its type. A table look-up thereby cannot confuse
//! two functions, and a hook whose signature is not the driver's does not compile.
//! `with_parameters!` hands a function's parameters to a macro.
#![allow(missing_docs, reason = "the functions are NVIDIA's, and documented there")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY2D, CUDA_MEMCPY3D,
    CUDA_MEMCPY3D_PEER, CUDA_MEMSET_NODE_PARAMS, CUarray, CUcontext, CUdevice, CUdeviceptr, CUevent,
    CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUipcEventHandle, CUipcMemHandle, CUkernel,
    CUlaunchConfig, CUlibrary, CUmemAccessDesc, CUmemAllocationProp, CUmemLocation, CUmemPoolProps,
    CUmemPoolPtrExportData, CUmemcpyAttributes, CUmemoryPool, CUmipmappedArray, CUmodule, CUresult, CUstream,
    CUsurfref, CUtexref, CUuuid,
};

/// A driver function.
///
/// # Safety
/// `Function` is a function pointer type of the signature that the driver's `NAME` has: tables of
/// addresses are read back at that type.
pub unsafe trait Symbol {
    /// The function's type. For a symbol without public declaration: a plain address.
    type Function: Copy;
    /// Position in [`NAMES`] and in every table of functions.
    const INDEX: usize;
    /// The exported name.
    const NAME: &'static CStr;
}

macro_rules! symbol {
    ($index:literal, $name:ident, ($($argument:ident: $type:ty),*)) => {
        #[derive(Debug, Clone, Copy)]
        pub struct $name;
        // SAFETY: the signature is generated from the driver's public headers.
        unsafe impl Symbol for $name {
            type Function = unsafe extern "C" fn($($argument: $type),*) -> CUresult;
            const INDEX: usize = $index;
            const NAME: &'static CStr = NAMES[$index];
        }
    };
}

macro_rules! undocumented {
    ($index:literal, $name:ident) => {
        #[derive(Debug, Clone, Copy)]
        pub struct $name;
        // SAFETY: the type claims only an address.
        unsafe impl Symbol for $name {
            type Function = *const c_void;
            const INDEX: usize = $index;
            const NAME: &'static CStr = NAMES[$index];
        }
    };
}

/// The arguments of `cuGetProcAddress` for a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcAddressName {
    /// The name without version and twin.
    pub name: &'static str,
    /// The first CUDA version that answers with this function, as 1000 × major + 10 × minor.
    pub version: c_int,
    /// Is it asked for with per-thread default streams?
    pub is_per_thread: bool,
}

macro_rules! lookup {
    ($name:literal, $version:literal, $is_per_thread:literal) => {
        Some(ProcAddressName { name: $name, version: $version, is_per_thread: $is_per_thread })
    };
}

include!("generated/symbols.rs");
include!("generated/parameters.rs");
include!("generated/lookups.rs");

/// How many symbols there are.
pub const COUNT: usize = NAMES.len();

/// The position of an exported name. The table is sorted, so this is a binary search.
pub fn index(name: &CStr) -> Option<usize> {
    NAMES.binary_search(&name).ok()
}
