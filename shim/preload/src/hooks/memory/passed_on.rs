//! Calls that pass a piece's memory on: to another process, a multicast object, a network card.
//!
//! The receiver keeps the memory alive by itself, so it is the driver's handle that is passed on,
//! and the memory is not kept for other pieces after the program has released it. It relies on
//! device memory: a piece on the host is out of memory here, as it would have been when it was made
//! without the library.

use std::ffi::{c_uint, c_void};
use std::sync::Once;

use wm_abi::*;

use crate::hooks::call::boundary::Outcome;
use crate::physical::{self, book, cache};
use crate::process::driver;
use crate::shortage;

/// Makes a call with the driver's handle of memory on the device in place of an alias. Other
/// handles are the driver's.
fn with_handle(alias: u64, call: impl FnOnce(u64) -> CUresult) -> Outcome {
    if is_elsewhere(alias) { refuse() } else { with_handle_anywhere(alias, call) }
}

fn with_handle_anywhere(alias: u64, call: impl FnOnce(u64) -> CUresult) -> Outcome {
    let handle = cache().handles().and_then(|mut handles| handles.share(alias));
    handle.map_or(Outcome::Forward, |handle| Outcome::Return(call(handle)))
}

fn is_elsewhere(handle: u64) -> bool {
    physical::is_any_elsewhere() && book().asked(handle).is_some()
}

#[cold]
fn refuse() -> Outcome {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        log::warn!(
            "memory of cuMemCreate that lies on the host, for want of room on the device, was not passed on as \
             device memory: out of memory; WMSHIM_OVERFLOW_CREATED=torch keeps such memory on the device"
        );
    });
    Outcome::Return(CUresult::OUT_OF_MEMORY)
}

/// `cuMemExportToShareableHandle`. A process that opened the memory would take it for device
/// memory.
pub(in crate::hooks) fn mem_export_to_shareable_handle(
    shared: *mut c_void,
    handle: u64,
    kind: c_uint,
    flags: u64,
) -> Outcome {
    let export = driver().get::<symbol::cuMemExportToShareableHandle>();
    // SAFETY: the program's arguments, with the handle that its own stands for.
    let call = |handle| unsafe { export(shared, handle, kind, flags) };
    if is_elsewhere(handle) && shortage::shares_host_memory() {
        with_handle_anywhere(handle, call)
    } else {
        with_handle(handle, call)
    }
}

/// `cuMulticastBindMem`.
pub(in crate::hooks) fn multicast_bind_mem(
    multicast: u64,
    at: usize,
    handle: u64,
    offset: usize,
    bytes: usize,
    flags: u64,
) -> Outcome {
    let bind = driver().get::<symbol::cuMulticastBindMem>();
    // SAFETY: a function without pointers.
    with_handle(handle, |handle| unsafe { bind(multicast, at, handle, offset, bytes, flags) })
}

/// `cuMulticastBindMem_v2`.
pub(in crate::hooks) fn multicast_bind_mem_v2(
    multicast: u64,
    device: CUdevice,
    at: usize,
    handle: u64,
    offset: usize,
    bytes: usize,
    flags: u64,
) -> Outcome {
    let bind = driver().get::<symbol::cuMulticastBindMem_v2>();
    // SAFETY: a function without pointers.
    with_handle(handle, |handle| unsafe { bind(multicast, device, at, handle, offset, bytes, flags) })
}

/// `cuLogicalEndpointBindMem`.
pub(in crate::hooks) fn logical_endpoint_bind_mem(
    endpoint: *mut c_void,
    device: CUdevice,
    at: u64,
    handle: u64,
    offset: u64,
    bytes: u64,
    flags: u64,
) -> Outcome {
    let bind = driver().get::<symbol::cuLogicalEndpointBindMem>();
    // SAFETY: the program's arguments, with the handle that its own stands for.
    with_handle(handle, |handle| unsafe { bind(endpoint, device, at, handle, offset, bytes, flags) })
}

/// `cuMulticastBindAddr`.
pub(in crate::hooks) fn multicast_bind_addr(
    _multicast: u64,
    _at: usize,
    address: CUdeviceptr,
    bytes: usize,
    _flags: u64,
) -> Outcome {
    share_range(address, bytes)
}

/// `cuMulticastBindAddr_v2`.
pub(in crate::hooks) fn multicast_bind_addr_v2(
    _multicast: u64,
    _device: CUdevice,
    _at: usize,
    address: CUdeviceptr,
    bytes: usize,
    _flags: u64,
) -> Outcome {
    share_range(address, bytes)
}

/// `cuMemGetHandleForAddressRange`.
pub(in crate::hooks) fn mem_get_handle_for_address_range(
    _handle: *mut c_void,
    address: CUdeviceptr,
    bytes: usize,
    _kind: c_uint,
    _flags: u64,
) -> Outcome {
    share_range(address, bytes)
}

/// The receiver gets the memory by its address.
fn share_range(address: CUdeviceptr, bytes: usize) -> Outcome {
    if physical::is_any_elsewhere() && book().reaches_elsewhere(address, bytes as u64) {
        return refuse();
    }
    cache().handles().iter_mut().for_each(|handles| handles.share_range(address, bytes as u64));
    Outcome::Forward
}
