//! NCCL's binary interface, as its public header of version 2.19 has it.

use std::ffi::{c_char, c_int, c_uint, c_void};

use wm_abi::CUstream;

/// `ncclResult_t`
pub(super) const SUCCESS: c_int = 0;
pub(super) const IN_PROGRESS: c_int = 7;

/// `ncclInt8`: counts are bytes.
pub(super) const BYTES: c_int = 0;

/// The oldest version with all functions: 2.19.
pub(super) const OLDEST: c_int = 21900;

/// Bytes of an `ncclUniqueId`.
pub const ID_BYTES: usize = 128;

/// `ncclUniqueId`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct NcclId(pub [u8; ID_BYTES]);

/// `ncclComm_t`, which this library never dereferences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct NcclHandle(pub(super) usize);

/// `ncclConfig_t` of 2.19; later versions append fields and are told the size of this one.
#[derive(Debug)]
#[repr(C)]
pub(super) struct NcclConfig {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

impl NcclConfig {
    /// Calls return when their work is in its stream.
    pub(super) fn blocking() -> Self {
        let undefined = c_int::MIN;
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: 21903,
            blocking: 1,
            cga_cluster_size: undefined,
            min_ctas: undefined,
            max_ctas: undefined,
            net_name: std::ptr::null(),
            split_share: undefined,
        }
    }
}

pub(super) type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;
pub(super) type GetUniqueId = unsafe extern "C" fn(*mut NcclId) -> c_int;
pub(super) type InitRankConfig =
    unsafe extern "C" fn(*mut NcclHandle, c_int, NcclId, c_int, *const NcclConfig) -> c_int;
pub(super) type GetAsyncError = unsafe extern "C" fn(NcclHandle, *mut c_int) -> c_int;
pub(super) type OfCommunicator = unsafe extern "C" fn(NcclHandle) -> c_int;
pub(super) type Group = unsafe extern "C" fn() -> c_int;
pub(super) type Send =
    unsafe extern "C" fn(*const c_void, usize, c_int, c_int, NcclHandle, CUstream) -> c_int;
pub(super) type Receive =
    unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, NcclHandle, CUstream) -> c_int;
pub(super) type AllGather =
    unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, NcclHandle, CUstream) -> c_int;
pub(super) type ErrorText = unsafe extern "C" fn(c_int) -> *const c_char;
pub(super) type LastError = unsafe extern "C" fn(NcclHandle) -> *const c_char;

const _: () = assert!(size_of::<NcclConfig>() == 48);
