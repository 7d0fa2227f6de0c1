//! Device memory: the calls that allocate and free it.
//!
//! A handler forwards every call that we do not serve: bad arguments (the driver has the right
//! error), a thread without context, a stream under capture (the allocation then belongs to the
//! graph), pools that the program made, and addresses outside our blocks. Once the library is
//! detached it forwards all that allocate.

use std::ffi::c_uint;

use wm_abi::{CUdevice, CUdeviceptr, CUmemoryPool, CUresult, CUstream};
use wm_driver::{Api, Device};
use wm_memory::{AllocateError, FirstTier, FreeError, Manager, Order, OverflowVerdict};

use super::pool;
use crate::counters::COUNTERS;
use crate::events::{self, BlockAllocated, BlockFreed};
use crate::gate::GATE;
use crate::guard::{self, Call};
use crate::hooks::call::boundary::Outcome;
use crate::hooks::call::stream::{self, DefaultStream};
use crate::process::{self, Site, StreamKind, driver, sticky_error};
use crate::registry::{self, NamedStream, REGISTRY};
use crate::subsystems::PROCESS;
use crate::{settings, shortage};

/// `cuMemAlloc`.
pub(in crate::hooks) unsafe fn mem_alloc(pointer: *mut CUdeviceptr, bytes: usize) -> Outcome {
    if pointer.is_null() || GATE.lets_driver_allocate() || stream::is_any_captured() {
        return Outcome::Forward;
    }
    let is_for_others = GATE.is_for_others();
    registry::current_site().map_or(Outcome::Forward, |site| {
        allocate(
            site,
            bytes,
            Order::Device,
            || Call::plain("cuMemAlloc"),
            |address| {
                REGISTRY.context_blocks.insert(&site, address);
                if is_for_others {
                    site.manager.keep_in_place(&(address..address + 1));
                }
                shortage::met();
                // SAFETY: the program's out-pointer, not null.
                unsafe { *pointer = address };
            },
        )
    })
}

/// As `cuMemAlloc`, for a program that says in which tier its block is to lie. Called by
/// `wmshim_alloc`, and by no driver function.
pub(crate) fn allocate_placed(bytes: usize, first_tier: FirstTier) -> Result<u64, CUresult> {
    if stream::is_any_captured() {
        return Err(CUresult::STREAM_CAPTURE_UNSUPPORTED);
    }
    if !settings::load().stitch || settings::load().disable || !guard::is_off() || process::detached() {
        return Err(CUresult::NOT_SUPPORTED);
    }
    sticky_error::failure().map_or(Ok(()), Err)?;
    let Some(site) = registry::current_site() else {
        return Err(driver().ctx_device().err().unwrap_or(CUresult::NOT_SUPPORTED));
    };
    match site.manager.allocate_placed(bytes, Order::Device, first_tier) {
        Ok(address) => {
            events::allocated(|| BlockAllocated {
                manager: site.manager,
                address,
                bytes,
                order: Order::Device,
            });
            REGISTRY.context_blocks.insert(&site, address);
            Ok(address)
        }
        Err(AllocateError::OutOfMemory(report)) => {
            PROCESS.overflow.say(site.device, bytes as u64, || *report);
            Err(CUresult::OUT_OF_MEMORY)
        }
        Err(AllocateError::Driver(code)) => Err(code),
    }
}

/// `cuMemAllocPitch`. Rows start at multiples of the device's texture alignment, as the driver's
/// do.
pub(in crate::hooks) unsafe fn mem_alloc_pitch(
    pointer: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> Outcome {
    let is_served = matches!(element, 4 | 8 | 16) && !GATE.lets_driver_allocate();
    if pointer.is_null() || pitch.is_null() || !is_served || stream::is_any_captured() {
        return Outcome::Forward;
    }
    let Some(site) = registry::current_site() else { return Outcome::Forward };
    let row = width.checked_next_multiple_of(registry::pitch_alignment(site.manager.gpu().ordinal()));
    let Some((row, bytes)) = row.and_then(|row| Some((row, row.checked_mul(height)?))) else {
        return Outcome::Forward;
    };
    allocate(
        site,
        bytes,
        Order::Device,
        || Call::plain("cuMemAllocPitch"),
        |address| {
            REGISTRY.context_blocks.insert(&site, address);
            // SAFETY: the program's out-pointers, neither null.
            unsafe { (*pointer, *pitch) = (address, row) };
        },
    )
}

/// `cuMemAllocAsync`.
#[inline]
pub(in crate::hooks) unsafe fn mem_alloc_async<D: DefaultStream>(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Outcome {
    if pointer.is_null() || stream::is_captured::<D>(stream) {
        return Outcome::Forward;
    }
    let Some((site, named)) = registry::site_of_stream(stream, D::HANDLE) else { return Outcome::Forward };
    if !pool::serves(site.device) {
        return Outcome::Forward;
    }
    // SAFETY: the program's out-pointer, not null.
    unsafe { allocate_in_stream(site, named, bytes, "cuMemAllocAsync", pointer) }
}

/// # Safety
/// `pointer` may be written to.
#[inline]
unsafe fn allocate_in_stream(
    site: Site,
    named: NamedStream,
    bytes: usize,
    name: &'static str,
    pointer: *mut CUdeviceptr,
) -> Outcome {
    let call = move || Call::ordered(name, Some(site.context), named.stream);
    allocate(site, bytes, named.order(), call, |address| {
        if named.is_told_of_allocations() {
            check_action(named, site.manager.gpu().act_as_allocation(named.context, named.stream));
        }
        // SAFETY: by contract.
        unsafe { *pointer = address };
    })
}

/// The driver's own allocation or free would have been an action of its stream. Counts an
/// allocation or free of ours that could not be made one.
#[inline]
fn check_action(named: NamedStream, acted: Result<(), CUresult>) {
    if let Err(code) = acted {
        log::debug!("{:?}: {code}", named.kind);
        COUNTERS.fail_open(
            "an allocation or a free is no action of its stream: a pool of the driver's is missing",
        );
    }
}

/// `cuMemAllocFromPoolAsync`.
pub(in crate::hooks) unsafe fn mem_alloc_from_pool_async<D: DefaultStream>(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Outcome {
    if pointer.is_null() || stream::is_captured::<D>(stream) {
        return Outcome::Forward;
    }
    match registry::site_of_stream(stream, D::HANDLE) {
        Some((site, named)) if pool::serves_from(pool, site.device) => {
            // SAFETY: the program's out-pointer, not null.
            unsafe { allocate_in_stream(site, named, bytes, "cuMemAllocFromPoolAsync", pointer) }
        }
        _ => Outcome::Forward,
    }
}

#[inline]
fn allocate(
    site: Site,
    bytes: usize,
    order: Order,
    call: impl FnOnce() -> Call,
    store: impl FnOnce(u64),
) -> Outcome {
    if bytes == 0 || process::exiting() {
        return Outcome::Forward;
    }
    GATE.await_resume();
    if let Some(error) = sticky_error::failure() {
        return Outcome::Return(error);
    }
    let given = if guard::is_off() {
        site.manager.allocate(bytes, order)
    } else {
        PROCESS.guard.allocate(site, bytes, order, call)
    };
    match given {
        Ok(address) => {
            events::allocated(|| BlockAllocated { manager: site.manager, address, bytes, order });
            store(address);
            Outcome::Return(CUresult::SUCCESS)
        }
        Err(error) => explain(site.device, bytes, error),
    }
}

#[cold]
#[inline(never)]
fn explain(device: CUdevice, bytes: usize, error: AllocateError) -> Outcome {
    match error {
        AllocateError::OutOfMemory(report) => {
            match report.overflow {
                OverflowVerdict::Later => log::debug!("device {device}: {report}"),
                _ => {
                    shortage::refused();
                    PROCESS.overflow.say(device, bytes as u64, || *report);
                }
            }
            Outcome::Return(CUresult::OUT_OF_MEMORY)
        }
        AllocateError::Driver(code) => {
            log::debug!("allocation of {bytes} bytes: {code}");
            let reason = "an internal driver call failed while memory was being mapped";
            COUNTERS.fail_open_by(reason, || {
                format!(" ({code}; calls that failed so far: {})", failures(device))
            });
            Outcome::Forward
        }
    }
}

/// Names of the driver calls of our own that have failed on a device.
fn failures(device: CUdevice) -> String {
    let readings = registry::existing(device).map(|manager| manager.gpu().probes.read()).unwrap_or_default();
    let names: Vec<&str> = readings.iter().filter(|it| it.errors > 0).map(|it| it.name.as_str()).collect();
    names.join(", ")
}

/// `cuMemFree`. Waits as the driver does. For memory of a pool the driver does not wait: the caller
/// guarantees that no work uses it.
pub(in crate::hooks) unsafe fn mem_free(address: CUdeviceptr) -> Outcome {
    let Some(manager) = registry::owner(address) else { return Outcome::Forward };
    let plain =
        manager.block(address).filter(|block| block.address == address && block.order == Order::Device);
    let Some(block) = plain else {
        return free(manager, address, Order::Device, || Call::plain("cuMemFree"));
    };
    let outcome = free_of_mem_alloc(manager, address, block.id);
    if let Outcome::Return(CUresult::SUCCESS) = outcome {
        REGISTRY.context_blocks.remove(address, block.id);
    }
    outcome
}

/// Frees a block that `cuMemAlloc` or `cuMemAllocPitch` gave out.
fn free_of_mem_alloc(manager: &'static Manager<Device>, address: u64, id: u64) -> Outcome {
    let context = REGISTRY.context_blocks.context_of(address, id).unwrap_or_else(|| manager.gpu().context());
    if let Err(code) = manager.gpu().wait_as_free(context) {
        return Outcome::Return(code);
    }
    let outcome = free(manager, address, Order::Device, || Call::plain("cuMemFree"));
    pool::give_back_idle(manager);
    outcome
}

/// `cuMemFreeAsync`.
#[inline]
pub(in crate::hooks) unsafe fn mem_free_async<D: DefaultStream>(
    address: CUdeviceptr,
    stream: CUstream,
) -> Outcome {
    let Some(manager) = registry::owner(address) else { return Outcome::Forward };
    if stream::is_captured::<D>(stream) {
        return Outcome::Forward;
    }
    let Some((site, named)) = registry::site_of_stream(stream, D::HANDLE) else {
        return unknown_stream(stream);
    };
    if named.is_told_of_frees() && manager.block(address).is_some_and(|block| block.address == address) {
        check_action(named, site.manager.gpu().act_as_free(named.context, named.stream));
    }
    if named.kind == StreamKind::PerThread && guard::is_off() {
        events::freed(|| BlockFreed { manager, address, order: named.order() });
        return answer_free(manager.free_in_own(address, named.id));
    }
    let call = || Call::ordered("cuMemFreeAsync", Some(named.context), named.stream);
    free(manager, address, named.order(), call)
}

/// The driver's error for a stream that it does not know.
#[cold]
#[inline(never)]
fn unknown_stream(stream: CUstream) -> Outcome {
    Outcome::Return(driver().stream_ctx(stream).err().unwrap_or(CUresult::INVALID_CONTEXT))
}

#[inline]
fn free(
    manager: &'static Manager<Device>,
    address: u64,
    order: Order,
    call: impl FnOnce() -> Call,
) -> Outcome {
    if let Some(error) = sticky_error::failure() {
        return Outcome::Return(error);
    }
    events::freed(|| BlockFreed { manager, address, order });
    let freed = if guard::is_off() {
        manager.free(address, order)
    } else {
        PROCESS.guard.free(manager, address, order, call)
    };
    answer_free(freed)
}

#[inline]
fn answer_free(freed: Result<(), FreeError>) -> Outcome {
    match freed {
        Ok(()) => Outcome::Return(CUresult::SUCCESS),
        Err(FreeError::NotOurs) => Outcome::Forward,
        Err(FreeError::OnCpu(code)) => Outcome::Return(code),
        // Not forwarded: the driver does not check addresses that it did not give out, and may
        // crash.
        Err(_) => Outcome::Return(CUresult::INVALID_VALUE),
    }
}
