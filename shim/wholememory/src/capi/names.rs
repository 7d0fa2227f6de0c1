//! The types of parameters and results under C's names.
//!
//! `cargo xtask wholememory` declares the functions of the shipped headers with them: the first
//! line of a type's comment is its name in C. An enum of C is a number that may be anything, and
//! all handles are alike for the compiler.

use std::ffi::{c_uint, c_void};

/// `wholememory_error_code_t`
pub type ErrorCode = c_uint;
/// `LogLevel`
pub type LogLevelCode = c_uint;
/// `wholememory_memory_type_t`
pub type MemoryTypeCode = c_uint;
/// `wholememory_memory_location_t`
pub type LocationCode = c_uint;
/// `wholememory_distributed_backend_t`
pub type BackendCode = c_uint;
/// `wholememory_dtype_t`
pub type ElementCode = c_uint;
/// `wholememory_access_type_t`
pub type AccessCode = c_uint;
/// `wholememory_optimizer_type_t`
pub type OptimizerCode = c_uint;

/// `wholememory_comm_t`
pub type CommunicatorHandle = *mut c_void;
/// `wholememory_handle_t`
pub type MemoryHandle = *mut c_void;
/// `wholememory_tensor_t`
pub type TensorHandle = *mut c_void;
/// `wholememory_embedding_t`
pub type EmbeddingHandle = *mut c_void;
/// `wholememory_embedding_optimizer_t`
pub type OptimizerHandle = *mut c_void;
/// `wholememory_embedding_cache_policy_t`
pub type CachePolicyHandle = *mut c_void;

/// `wholememory_nvshmem_ref_t`: of builds with NVSHMEM, which this library is not.
pub type NvshmemReference = c_void;
