//! `WMSHIM_GUARD`: finds programs that write past the end of a block, and says which block it was.
//!
//! | module | one idea |
//! |---|---|
//! | [`tag`] | a guarded block, and the call that allocated it |
//! | [`page`] | unmapped space behind large blocks: who is there when the device faults |
//! | [`kernel_log`] | the address of a fault, where the kernel's log may be read |
//! | [`pattern`], [`book`] | canaries as data: what is written, and which block may be looked at when |
//! | [`desk`] | one device's copies: patterns out, tails back |
//! | [`canary`] | when tails are written and looked at |
//!
//! Invariants: off, a call of the program passes one relaxed load of a value that never changes; a guard changes no answer of
//! the driver (what a canary changes in the order of work is said in `docs/guard.md`); no lock is held across a driver call; while a stream is being captured, and once exit has begun, nothing is
//! written or fetched.

mod book;
mod canary;
mod desk;
mod kernel_log;
mod page;
mod pattern;
mod tag;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use wm_abi::{CUcontext, CUdevice, CUresult, CUstream};
use wm_driver::{Device, StreamId};
use wm_memory::{AllocateError, FreeError, Manager, Order};

use crate::glance::GLANCE;
use crate::lifecycle;
use crate::managers::Site;
use crate::settings::{Guard, Settings};
use crate::state::streams;

const OFF: u8 = 0;
const PAGE: u8 = 1;
const CANARY: u8 = 2;

/// What guards have seen. One place to add a counter: a field here, and its line in [`figures`].
struct Counters {
    /// Blocks that got a guard.
    guarded: AtomicU64,
    /// Times that a tail was compared.
    looks: AtomicU64,
    /// Blocks that were written past their end.
    overrun: AtomicU64,
    /// Blocks that should have had a guard and did not, or were freed without a look.
    unwatched: AtomicU64,
}

static SEEN: Counters = Counters {
    guarded: AtomicU64::new(0),
    looks: AtomicU64::new(0),
    overrun: AtomicU64::new(0),
    unwatched: AtomicU64::new(0),
};

/// Why a block has no guard, or nobody looked at it when it was freed.
#[derive(Clone, Copy)]
enum Unwatched {
    Captured = 0,
    Refused = 1,
    Busy = 2,
    Early = 3,
}

/// Counts a block that is not watched; each reason is said once.
fn unwatched(why: Unwatched) {
    static SAID: [AtomicBool; 4] = [const { AtomicBool::new(false) }; 4];
    SEEN.unwatched.fetch_add(1, Relaxed);
    if !SAID[why as usize].swap(true, Relaxed) {
        let why = match why {
            Unwatched::Captured => "while a stream is being captured, blocks are not watched",
            Unwatched::Refused => {
                "the driver refused a copy that a canary needs: some blocks are not watched"
            }
            Unwatched::Early => {
                "cuMemFree freed blocks of a pool before the host had waited for their stream: they are not looked at"
            }
            Unwatched::Busy => "more blocks were freed than can be looked at at once: some are not watched",
        };
        log::warn!("guard: {why}; `wmctl stats` counts them");
    }
}

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
    GLANCE.guard.store(mode, Relaxed);
}

/// Is nothing guarded?
#[inline]
pub(crate) fn is_off() -> bool {
    GLANCE.guard.load(Relaxed) == OFF
}

fn is(mode: u8) -> bool {
    GLANCE.guard.load(Relaxed) == mode
}

/// A call of the program that gives memory out or takes it back.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// The driver function.
    pub(crate) name: &'static str,
    /// Which work it is ordered with.
    pub(crate) lane: Lane,
}

/// What a call is ordered with.
#[derive(Clone, Copy)]
pub(crate) enum Lane {
    /// All work of the device.
    Device,
    /// This stream, a null one replaced by what it stands for.
    Stream(CUcontext, CUstream),
    /// A stream that we cannot name.
    Unknown,
}

impl Call {
    /// A call that names no stream.
    pub(crate) fn plain(name: &'static str) -> Self {
        Self { name, lane: Lane::Device }
    }

    /// A call in a stream of a context.
    pub(crate) fn ordered(name: &'static str, context: Option<CUcontext>, stream: CUstream) -> Self {
        let lane = context.map_or(Lane::Unknown, |context| Lane::Stream(context, stream));
        Self { name, lane }
    }
}

/// The manager's name for a stream; a per-thread one has a name of its own here, although its blocks are ordered by
/// the device.
fn identify(order: Order, context: CUcontext, stream: CUstream) -> StreamId {
    order.stream().unwrap_or_else(|| streams().identify(context, stream))
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

/// A block ends with its context: nobody looks at it any more.
pub(crate) fn forget(address: u64) {
    if !is_off() {
        page::freed(address);
        canary::forget(address);
    }
}

/// What the host waits for.
pub(crate) enum Waits {
    /// A stream of a context.
    Stream(CUcontext, CUstream),
    /// All of a context's work.
    Context(CUcontext),
    /// An event, of which it is not known what it is behind.
    Event,
}

/// What was under way when a wait began.
pub(crate) struct Watch(canary::Moment);

/// The host is about to wait. `None` where nothing is guarded.
#[inline]
pub(crate) fn before_wait(waits: &Waits) -> Option<Watch> {
    if is_off() { None } else { Some(Watch(canary::moment(waits))) }
}

impl Watch {
    /// The wait was successful, and the manager knows what is past by it.
    #[cold]
    pub(crate) fn end(self, manager: &'static Manager<Device>) {
        if lifecycle::exiting() {
            return;
        }
        if is(PAGE) { manager.end_views(0) } else { canary::waited(manager, &self.0) }
    }
}

/// A context of the device may end with the call that follows: the last chance to look.
pub(crate) fn before_end(manager: &'static Manager<Device>) {
    if is(CANARY) && !lifecycle::exiting() {
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
    if is(PAGE) && !lifecycle::forked() {
        crate::boundary::keep_errno(|| page::tell(error));
    }
}

/// The process ends. Looks at what has arrived; the driver is not called any more.
pub(crate) fn finish() {
    if is(CANARY) {
        canary::finish();
    }
}

/// For the statistics; null where nothing is guarded.
pub(crate) fn figures() -> Option<wm_schema::Guard> {
    if is_off() {
        return None;
    }
    let read = |counter: &AtomicU64| counter.load(Relaxed);
    Some(wm_schema::Guard {
        mode: if is(PAGE) { "page" } else { "canary" }.to_owned(),
        guarded: read(&SEEN.guarded),
        looks: read(&SEEN.looks),
        overrun: read(&SEEN.overrun),
        unwatched: read(&SEEN.unwatched),
    })
}
