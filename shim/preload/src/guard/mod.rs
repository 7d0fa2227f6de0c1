//! `WMSHIM_GUARD`: finds programs that write past the end of a block, and says which block it was.
//!
//! | module | one idea |
//! |---|---|
//! | [`call`] | the program's calls as guards see them |
//! | [`guarded_block`] | a guarded block, and the call that allocated it |
//! | [`counters`] | what was seen, and what could not be watched |
//! | [`page`] | unmapped space behind large blocks: which block is near when the device faults |
//! | [`kernel_log`] | the address of a fault, where the kernel's log may be read |
//! | [`pattern`], [`watched_blocks`] | canaries as data: what is written, and which block may be looked at when |
//! | [`tail_copies`] | one device's copies: patterns out, tails back |
//! | [`canary`] | when tails are written and looked at |
//!
//! Invariants: with guards off, a call of the program pays for one relaxed load of a value that never changes. A guard changes no
//! answer of the driver (`docs/guard.md` says what a canary changes in the order of work). No lock is held across a driver call.
//! Nothing is written or fetched while a stream is captured, nor once exit has begun.

mod call;
mod canary;
mod counters;
mod guarded_block;
mod kernel_log;
mod page;
mod pattern;
mod tail_copies;
mod watched_blocks;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wm_abi::{CUcontext, CUdevice, CUresult};
use wm_driver::Device;
use wm_memory::{AllocateError, FreeError, Manager, Order};

use crate::process::{self, PROCESS_HOT, Site};
use crate::settings::{Guard, Settings};

pub(crate) use call::{Call, SyncTarget};
use counters::SEEN;

const OFF: u8 = 0;
const PAGE: u8 = 1;
const CANARY: u8 = 2;

/// The settings are known, and no hook has run yet.
pub(crate) fn choose(settings: &Settings) {
    if settings.guard != Guard::Off && !settings.stitch {
        log::warn!("WMSHIM_GUARD has no effect with WMSHIM_STITCH=off: blocks are then the driver's");
    }
    let mode = match settings.guard {
        Guard::Off => OFF,
        Guard::Page => PAGE,
        Guard::Canary => CANARY,
    };
    PROCESS_HOT.guard.store(mode, Relaxed);
}

/// Is nothing guarded?
#[inline]
pub(crate) fn is_off() -> bool {
    PROCESS_HOT.guard.load(Relaxed) == OFF
}

fn is(mode: u8) -> bool {
    PROCESS_HOT.guard.load(Relaxed) == mode
}

/// As [`Manager::allocate`], with the guard of the mode.
#[cold]
#[inline(never)]
pub(crate) fn allocate(
    site: Site,
    bytes: usize,
    order: Order,
    call: impl FnOnce() -> Call,
) -> Result<u64, AllocateError> {
    if is(PAGE) {
        page::allocate(&site, bytes, order, call())
    } else {
        canary::allocate(&site, bytes, order, call())
    }
}

/// As [`Manager::free`]; a canary is looked at first.
#[cold]
#[inline(never)]
pub(crate) fn free(
    manager: &'static Manager<Device>,
    address: u64,
    order: Order,
    call: impl FnOnce() -> Call,
) -> Result<(), FreeError> {
    if is(CANARY) {
        return canary::free(manager, address, order, call());
    }
    page::freed(address);
    manager.free(address, order)
}

/// A block ends with its context: it is not looked at any more.
pub(crate) fn forget(address: u64) {
    if !is_off() {
        page::freed(address);
        canary::forget(address);
    }
}

/// What was under way when a wait began.
pub(crate) struct Watch(canary::Moment);

/// The host is about to wait. `None` where nothing is guarded.
#[inline]
pub(crate) fn before_wait(target: &SyncTarget) -> Option<Watch> {
    if is_off() { None } else { Some(Watch(canary::moment(target))) }
}

impl Watch {
    /// The wait was successful, and the manager knows what is past by it.
    #[cold]
    pub(crate) fn end(self, manager: &'static Manager<Device>) {
        if process::exiting() {
            return;
        }
        if is(PAGE) { manager.end_views(0) } else { canary::waited(manager, &self.0) }
    }
}

/// A context of the device may end with the call that follows: the last chance to look.
pub(crate) fn before_end(manager: &'static Manager<Device>) {
    if is(CANARY) && !process::exiting() {
        canary::last_look(manager);
    }
}

/// A context is about to end: what was made in it goes with it.
pub(crate) fn end_context(context: CUcontext) {
    if is(CANARY) {
        canary::end_context(context);
    }
}

/// The device's contexts, and all its blocks, are gone.
pub(crate) fn end_device(device: CUdevice) {
    if !is_off() {
        page::end_device(device);
        canary::end_device(device);
    }
}

/// A call of the program returned an error that stays, for the first time.
#[cold]
pub(crate) fn faulted(error: CUresult) {
    if is(PAGE) && !process::forked() {
        crate::process::keep_errno(|| page::tell(error));
    }
}

/// The process ends. Looks at what has arrived; the driver is not called any more.
pub(crate) fn finish() {
    if is(CANARY) {
        canary::finish();
    }
}

/// For the statistics; null where nothing is guarded.
pub(crate) fn statistics() -> Option<wm_schema::GuardStats> {
    if is_off() {
        return None;
    }
    let read = |counter: &AtomicU64| counter.load(Relaxed);
    Some(wm_schema::GuardStats {
        mode: if is(PAGE) { "page" } else { "canary" }.to_owned(),
        guarded: read(&SEEN.guarded),
        looks: read(&SEEN.looks),
        overrun: read(&SEEN.overrun),
        unwatched: read(&SEEN.unwatched),
    })
}
