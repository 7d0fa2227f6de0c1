//! Device memory: the calls that give it out and take it back.
//!
//! A handler passes to the driver whatever is not plainly ours: bad arguments (the driver has the right error), a
//! thread without context, a stream under capture (the allocation then belongs to the graph), pools that the program
//! made, and addresses that are none of our blocks.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wm_abi::{CUcontext, CUdevice, CUdeviceptr, CUmemoryPool, CUresult, CUstream, symbol};
use wm_driver::Device;
use wm_memory::{AllocateError, FreeError, Manager, Order, Overflow, Shortage};

use super::pool;
use super::stream::{self, DefaultStream};
use crate::boundary::Answer;
use crate::counters::{fail_open, fail_open_by};
use crate::guard::{self, Call};
use crate::lifecycle;
use crate::managers::{self, Site};
use crate::named::{self, Kind, Named};
use crate::state::driver;
use crate::{health, owners, settings, shortage, trace};

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
                shortage::met();
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
    let Some((site, named)) = named::at(stream, D::HANDLE) else { return Answer::Pass };
    if !pool::serves(site.device) {
        return Answer::Pass;
    }
    // SAFETY: the program's out-pointer, not null.
    unsafe { give_in(site, named, bytes, "cuMemAllocAsync", pointer) }
}

/// # Safety
/// `pointer` may be written to.
#[inline]
unsafe fn give_in(
    site: Site,
    named: Named,
    bytes: usize,
    name: &'static str,
    pointer: *mut CUdeviceptr,
) -> Answer {
    let call = move || Call::ordered(name, Some(site.context), named.stream);
    give(site, bytes, named.order(), call, |address| {
        if named.is_told_of_allocations() {
            act(named, site.manager.gpu().act_as_allocation(named.context, named.stream));
        }
        // SAFETY: by contract.
        unsafe { *pointer = address };
    })
}

/// What the driver's own call would have done in a stream besides was done, or could not be.
#[inline]
fn act(named: Named, acted: Result<(), CUresult>) {
    if let Err(code) = acted {
        log::debug!("{:?}: {code}", named.kind);
        fail_open("an allocation or a free is no action of its stream: a pool of the driver's is missing");
    }
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
    match named::at(stream, D::HANDLE) {
        Some((site, named)) if pool::serves_from(pool, site.device) => {
            // SAFETY: the program's out-pointer, not null.
            unsafe { give_in(site, named, bytes, "cuMemAllocFromPoolAsync", pointer) }
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
            match report.overflow {
                Overflow::Later => log::debug!("device {device}: {report}"),
                _ => refused(device, &report),
            }
            Answer::Is(CUresult::OUT_OF_MEMORY)
        }
        AllocateError::Driver(code) => {
            log::debug!("allocation of {bytes} bytes: {code}");
            let reason = "an internal driver call failed while memory was being mapped";
            fail_open_by(reason, || format!(" ({code}; calls that failed so far: {})", failures(device)));
            Answer::Pass
        }
    }
}

/// Names of our own driver calls on a device that have failed.
fn failures(device: CUdevice) -> String {
    let readings = managers::known(device).map(|manager| manager.gpu().probes.read()).unwrap_or_default();
    let names: Vec<&str> = readings.iter().filter(|it| it.errors > 0).map(|it| it.name).collect();
    names.join(", ")
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

/// Waits as the driver's does, but not for memory of a pool: there the caller says that nothing uses it any more.
pub(super) unsafe fn free(address: CUdeviceptr) -> Answer {
    let Some(manager) = managers::owner(address) else { return Answer::Pass };
    let plain =
        manager.block(address).filter(|block| block.address == address && block.order == Order::Device);
    let Some(block) = plain else {
        return take_in(manager, address, Order::Device, || Call::plain("cuMemFree"));
    };
    let answer = free_plain(manager, address, block.id);
    if let Answer::Is(CUresult::SUCCESS) = answer {
        owners::forget(address, block.id);
    }
    answer
}

/// A block of `cuMemAlloc`.
fn free_plain(manager: &'static Manager<Device>, address: u64, id: u64) -> Answer {
    if !settings::load().free_waits && guard::is_off() {
        match manager.free_behind_all(address) {
            Err(FreeError::Unrecorded(_)) => {}
            taken => return taken_back(manager, address, Order::Device, taken),
        }
    }
    let context = owners::context(address, id).unwrap_or_else(|| manager.gpu().context());
    if let Err(code) = manager.gpu().wait_as_free(context) {
        return Answer::Is(code);
    }
    let answer = take_in(manager, address, Order::Device, || Call::plain("cuMemFree"));
    pool::give_back_idle(manager);
    answer
}

#[inline]
pub(super) unsafe fn free_ordered<D: DefaultStream>(address: CUdeviceptr, stream: CUstream) -> Answer {
    let Some(manager) = managers::owner(address) else { return Answer::Pass };
    if stream::captured::<D>(stream) {
        return Answer::Pass;
    }
    let Some((site, named)) = named::at(stream, D::HANDLE) else { return unnamed(stream) };
    if named.is_told_of_frees() && manager.block(address).is_some_and(|block| block.address == address) {
        act(named, site.manager.gpu().act_as_free(named.context, named.stream));
    }
    if named.kind == Kind::PerThread && guard::is_off() {
        return taken_back(manager, address, named.order(), manager.free_in_own(address, named.id));
    }
    let call = || Call::ordered("cuMemFreeAsync", Some(named.context), named.stream);
    take_in(manager, address, named.order(), call)
}

/// What the driver says of a stream that cannot be named.
#[cold]
#[inline(never)]
fn unnamed(stream: CUstream) -> Answer {
    let mut context = CUcontext::NULL;
    // SAFETY: the driver checks the handle; the out-pointer is to a live local.
    let asked = unsafe { driver().get::<symbol::cuStreamGetCtx>()(stream, &mut context) };
    Answer::Is(if asked == CUresult::SUCCESS { CUresult::INVALID_CONTEXT } else { asked })
}

#[inline]
fn take_in(
    manager: &'static Manager<Device>,
    address: u64,
    order: Order,
    call: impl FnOnce() -> Call,
) -> Answer {
    if let Some(error) = health::failure() {
        return Answer::Is(error);
    }
    let taken = if guard::is_off() {
        manager.free(address, order)
    } else {
        guard::free(manager, address, order, call)
    };
    taken_back(manager, address, order, taken)
}

#[inline]
fn taken_back(manager: &Manager<Device>, address: u64, order: Order, taken: Result<(), FreeError>) -> Answer {
    match taken {
        Ok(()) => {
            if trace::is_on() {
                trace::freed(manager.gpu().ordinal(), address, order);
            }
            Answer::Is(CUresult::SUCCESS)
        }
        Err(FreeError::NotOurs) => Answer::Pass,
        // Never the driver's: it does not check what it has never known, and may crash.
        Err(_) => Answer::Is(CUresult::INVALID_VALUE),
    }
}
