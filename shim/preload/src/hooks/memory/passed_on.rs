//! Calls that pass a piece's memory on: to another process, a multicast object, a network card.
//!
//! The receiver keeps the memory alive by itself, so it is the driver's handle that is passed on,
//! and the memory is not kept for other pieces after the program has released it. It relies on
//! device memory: a piece on the host becomes that ([`to_device`]), or the call is out of memory,
//! as its creation would have been without the library.

use std::ffi::{c_uint, c_void};
use std::sync::Once;

use wm_abi::*;

use super::{adopted, to_device};
use crate::hooks::call::boundary::Outcome;
use crate::physical::{self, book, cache};
use crate::process::driver;
use crate::shortage;

/// Makes a call with the driver's handle of memory on the device in place of an alias. Other
/// handles are the driver's.
fn with_handle(alias: u64, call: impl FnOnce(u64) -> CUresult) -> Outcome {
    if !adopted::disown(alias) {
        return Outcome::Return(CUresult::OUT_OF_MEMORY);
    }
    let is_there = !is_elsewhere(alias) || to_device::bring(alias);
    if is_there {
        return with_handle_anywhere(alias, call);
    }
    adopted::adopt_again(alias);
    refuse()
}

fn with_handle_anywhere(alias: u64, call: impl FnOnce(u64) -> CUresult) -> Outcome {
    let handle = cache().handles_for(alias).and_then(|mut handles| handles.share(alias));
    handle.map_or(Outcome::Forward, |handle| Outcome::Return(call(handle)))
}

fn is_elsewhere(handle: u64) -> bool {
    physical::is_any_elsewhere() && book().is_displaced(handle)
}

#[cold]
fn refuse() -> Outcome {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        log::warn!(
            "memory of cuMemCreate that lies on the host could not become device memory, and was not passed on: \
             out of memory; WMSHIM_OVERFLOW_CREATED=torch keeps such memory on the device, and with \
             WMSHIM_MIGRATE=on it may become device memory while it is mapped"
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
    // Its memory may have more types than the program has asked for.
    let asked = physical::is_any_elsewhere().then(|| book().asked(handle)).flatten();
    if asked.is_some_and(|asked| asked.handle_types & kind == 0) {
        return Outcome::Return(CUresult::INVALID_VALUE);
    }
    if !adopted::disown(handle) {
        return Outcome::Return(CUresult::OUT_OF_MEMORY);
    }
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

/// Is all memory in a range on its device, after what is not was brought there?
fn is_on_device(address: u64, bytes: u64) -> bool {
    if !physical::is_any_elsewhere() || !book().reaches_elsewhere(address, bytes) {
        return true;
    }
    let aliases = cache().handles().map(|handles| handles.mapped_in(address, bytes)).unwrap_or_default();
    aliases.into_iter().all(to_device::bring) && !book().reaches_elsewhere(address, bytes)
}

/// The receiver gets the memory by its address.
fn share_range(address: CUdeviceptr, bytes: usize) -> Outcome {
    if !adopted::disown_in(address, bytes as u64, None) {
        return Outcome::Return(CUresult::OUT_OF_MEMORY);
    }
    if !is_on_device(address, bytes as u64) {
        return refuse();
    }
    cache().share_range(address, bytes as u64);
    Outcome::Forward
}
