//! Device memory: the calls that give it out and take it back.
//!
//! A handler passes to the driver whatever is not plainly ours: bad arguments (the driver has the right error), a
//! thread without context, a stream under capture (the allocation then belongs to the graph), pools that the program
//! made, and addresses that are none of our blocks.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wm_abi::{CUdevice, CUdeviceptr, CUmemoryPool, CUresult, CUstream};
use wm_driver::Device;
use wm_memory::{AllocateError, FreeError, Manager, Order, Shortage};

use super::pool;
use super::stream::{self, DefaultStream};
use crate::boundary::Answer;
use crate::counters::fail_open;
use crate::guard::{self, Call};
use crate::lifecycle;
use crate::managers::{self, Site};
use crate::{health, owners, trace};

pub(super) unsafe fn plain(pointer: *mut CUdeviceptr, bytes: usize) -> Answer {
    if pointer.is_null() || stream::capturing() {
        return Answer::Pass;
    }
    managers::here().map_or(Answer::Pass, |site| {
        give(
            site,
            bytes,
            Order::Device,
            || Call::plain("cuMemAlloc"),
            |address| {
                owners::note(&site, address);
                // SAFETY: the program's out-pointer, not null.
                unsafe { *pointer = address };
            },
        )
    })
}

/// Rows start at multiples of the device's texture alignment, as the driver's do.
pub(super) unsafe fn pitched(
    pointer: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> Answer {
    if pointer.is_null() || pitch.is_null() || !matches!(element, 4 | 8 | 16) || stream::capturing() {
        return Answer::Pass;
    }
    let Some(site) = managers::here() else { return Answer::Pass };
    let row = width.checked_next_multiple_of(managers::pitch_alignment(site.manager.gpu().ordinal()));
    let Some((row, bytes)) = row.and_then(|row| Some((row, row.checked_mul(height)?))) else {
        return Answer::Pass;
    };
    give(
        site,
        bytes,
        Order::Device,
        || Call::plain("cuMemAllocPitch"),
        |address| {
            owners::note(&site, address);
            // SAFETY: the program's out-pointers, neither null.
            unsafe { (*pointer, *pitch) = (address, row) };
        },
    )
}

#[inline]
pub(super) unsafe fn ordered<D: DefaultStream>(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    if pointer.is_null() || stream::captured::<D>(stream) {
        return Answer::Pass;
    }
    let Some((site, order)) = managers::at(stream, D::HANDLE) else { return Answer::Pass };
    if !pool::serves(site.device) {
        return Answer::Pass;
    }
    let call = move || Call::ordered("cuMemAllocAsync", Some(site.context), stream::meant::<D>(stream));
    // SAFETY: the program's out-pointer, not null.
    give(site, bytes, order, call, |address| unsafe { *pointer = address })
}

pub(super) unsafe fn from_pool<D: DefaultStream>(
    pointer: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Answer {
    if pointer.is_null() || stream::captured::<D>(stream) {
        return Answer::Pass;
    }
    match managers::at(stream, D::HANDLE) {
        Some((site, order)) if pool::serves_from(pool, site.device) => {
            let call = move || {
                Call::ordered("cuMemAllocFromPoolAsync", Some(site.context), stream::meant::<D>(stream))
            };
            // SAFETY: the program's out-pointer, not null.
            give(site, bytes, order, call, |address| unsafe { *pointer = address })
        }
        _ => Answer::Pass,
    }
}

#[inline]
fn give(
    site: Site,
    bytes: usize,
    order: Order,
    call: impl FnOnce() -> Call,
    store: impl FnOnce(u64),
) -> Answer {
    if bytes == 0 || lifecycle::exiting() {
        return Answer::Pass;
    }
    if let Some(error) = health::failure() {
        return Answer::Is(error);
    }
    let given = if guard::is_off() {
        site.manager.allocate(bytes, order)
    } else {
        guard::allocate(site, bytes, order, call)
    };
    match given {
        Ok(address) => {
            if trace::is_on() {
                trace::allocated(site.device, address, bytes, order);
            }
            store(address);
            Answer::Is(CUresult::SUCCESS)
        }
        Err(error) => failed(site.device, bytes, error),
    }
}

#[cold]
#[inline(never)]
fn failed(device: CUdevice, bytes: usize, error: AllocateError) -> Answer {
    match error {
        AllocateError::OutOfMemory(report) => {
            refused(device, &report);
            Answer::Is(CUresult::OUT_OF_MEMORY)
        }
        AllocateError::Driver(code) => {
            log::debug!("allocation of {bytes} bytes: {code}");
            fail_open("an internal driver call failed while memory was being mapped");
            Answer::Pass
        }
    }
}

/// A program that looks for its batch size meets refusals by the hundred: the 1st, 2nd, 4th, 8th, ... are said.
fn refused(device: CUdevice, report: &Shortage) {
    static REFUSALS: AtomicU64 = AtomicU64::new(0);
    match REFUSALS.fetch_add(1, Relaxed) + 1 {
        1 => log::warn!("device {device}: {report}"),
        count if count.is_power_of_two() => log::warn!("device {device}: refusal {count}: {report}"),
        _ => {}
    }
}

pub(super) unsafe fn free(address: CUdeviceptr) -> Answer {
    let Some(manager) = managers::owner(address) else { return Answer::Pass };
    let owned = owners::freeing(manager, address);
    let answer = take(manager, address, Order::Device, || Call::plain("cuMemFree"));
    if let (Some(id), Answer::Is(CUresult::SUCCESS)) = (owned, &answer) {
        owners::forget(address, id);
    }
    answer
}

#[inline]
pub(super) unsafe fn free_ordered<D: DefaultStream>(address: CUdeviceptr, stream: CUstream) -> Answer {
    let Some(manager) = managers::owner(address) else { return Answer::Pass };
    if stream::captured::<D>(stream) {
        return Answer::Pass;
    }
    // A stream that we cannot name orders nothing we know of: then the block waits for the whole device.
    let place = managers::at(stream, D::HANDLE);
    let order = place.map_or(Order::Device, |(_, order)| order);
    take(manager, address, order, || {
        let context = place.map(|(site, _)| site.context);
        Call::ordered("cuMemFreeAsync", context, stream::meant::<D>(stream))
    })
}

#[inline]
fn take(
    manager: &'static Manager<Device>,
    address: u64,
    order: Order,
    call: impl FnOnce() -> Call,
) -> Answer {
    if let Some(error) = health::failure() {
        return Answer::Is(error);
    }
    if trace::is_on() {
        trace::freed(manager.gpu().ordinal(), address, order);
    }
    let taken = if guard::is_off() {
        manager.free(address, order)
    } else {
        guard::free(manager, address, order, call)
    };
    match taken {
        Ok(()) => Answer::Is(CUresult::SUCCESS),
        Err(FreeError::NotOurs) => Answer::Pass,
        // Never the driver's: it does not check what it has never known, and may crash.
        Err(_) => Answer::Is(CUresult::INVALID_VALUE),
    }
}
