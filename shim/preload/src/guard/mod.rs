//! `WMSHIM_GUARD`: finds programs that write past the end of a block, and says which block it was.
//!
//! | module | one idea |
//! |---|---|
//! | [`call`] | the program's calls as guards see them |
//! | [`guarded_block`] | a guarded block, and the call that allocated it |
//! | [`counters`] | counts of checks and overruns, and of blocks without a canary |
//! | [`page`] | unmapped space behind large blocks, and the report of the block that is near a device fault |
//! | [`kernel_log`] | the address of a fault, where the kernel's log may be read |
//! | [`pattern`], [`watched_blocks`] | canaries as data: the bytes of a tail, and the blocks that may be checked now |
//! | [`tail_copies`] | one device's copies: patterns out, tails back |
//! | [`canary`] | when tails are written and checked |
//!
//! [`PageGuards`](page::PageGuards) and [`Canaries`](canary::Canaries) are values, built in tests
//! with a model GPU. [`Guards`] is the process's one value of both; it adds the calls of the memory
//! manager.
//!
//! Invariants: with guards off, a call of the program pays for one relaxed load of a value that
//! never changes. A guard changes no answer of the driver (`docs/guard.md` says what a canary
//! changes in the order of work). No lock is held across a driver call. Nothing is written or
//! fetched while a stream is captured, nor once exit has begun.

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
use wm_driver::{Device, Gpu};
use wm_memory::{AllocateError, BlockGuard, FreeError, Manager, Order, guard};

use crate::process::{self, PROCESS_HOT, Site, preserve_errno};
use crate::registry;
use crate::settings::{Guard, Settings};

pub(crate) use call::{Call, SyncTarget};
use canary::Canaries;
pub(crate) use canary::Moment;
use guarded_block::{CallOrigin, GuardedBlock};
use page::PageGuards;

const OFF: u8 = 0;
const PAGE: u8 = 1;
const CANARY: u8 = 2;

/// The guarded blocks of a process. The mode is in the process's hot cache line, since every
/// allocation and free reads it.
pub(crate) struct Guards {
    pages: PageGuards,
    canaries: Canaries<Device>,
}

/// Is nothing guarded?
#[inline]
pub(crate) fn is_off() -> bool {
    PROCESS_HOT.guard.load(Relaxed) == OFF
}

fn is(mode: u8) -> bool {
    PROCESS_HOT.guard.load(Relaxed) == mode
}

/// Sets the mode. The settings are known, and no hook has run yet.
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

impl Guards {
    pub(crate) const fn new() -> Self {
        Self { pages: PageGuards::new(), canaries: Canaries::new() }
    }

    /// As [`Manager::allocate`], with the guard of the mode.
    #[cold]
    #[inline(never)]
    pub(crate) fn allocate(
        &self,
        site: Site,
        bytes: usize,
        order: Order,
        call: impl FnOnce() -> Call,
    ) -> Result<u64, AllocateError> {
        let kind = if is(PAGE) { BlockGuard::Page } else { BlockGuard::Tail };
        let address = site.manager.allocate_guarded(bytes, order, kind)?;
        let call = call();
        let block = || {
            let (id, device) = (site.manager.block(address)?.id, site.manager.gpu().ordinal());
            Some(GuardedBlock { device, address, bytes, id, origin: CallOrigin::of(call.name) })
        };
        if is(CANARY) {
            self.canaries.watch(site.manager.gpu(), block, (address, bytes), order, call.order);
        } else if guard::is_fenced(bytes) {
            block().into_iter().for_each(|block| self.pages.insert(block));
        }
        Ok(address)
    }

    /// As [`Manager::free`]; a canary is checked first.
    #[cold]
    #[inline(never)]
    pub(crate) fn free(
        &self,
        manager: &'static Manager<Device>,
        address: u64,
        order: Order,
        call: impl FnOnce() -> Call,
    ) -> Result<(), FreeError> {
        if is(CANARY) {
            let call = call();
            self.canaries.check_before_free(manager.gpu(), address, order, call.order, call.name);
        } else {
            self.pages.freed(address);
        }
        manager.free(address, order)
    }

    /// A block ends with its context: it is not checked any more.
    pub(crate) fn forget(&self, address: u64) {
        if !is_off() {
            self.pages.freed(address);
            self.canaries.forget(address);
        }
    }

    /// The host is about to wait. `None` if nothing is guarded.
    #[inline]
    pub(crate) fn before_wait(&self, target: &SyncTarget) -> Option<Moment> {
        if is_off() { None } else { Some(self.canaries.moment(target)) }
    }

    /// The wait that began at the moment was successful, and the manager knows which frees are past
    /// by it.
    #[cold]
    pub(crate) fn after_wait(&self, manager: &'static Manager<Device>, moment: &Moment) {
        if process::exiting() {
            return;
        }
        if is(PAGE) { manager.end_views(0) } else { self.canaries.waited(manager.gpu(), moment) }
    }

    /// A context of the device may end with the call that follows: the last chance to check.
    pub(crate) fn before_end(&self, manager: &'static Manager<Device>) {
        if is(CANARY) && !process::exiting() {
            self.canaries.final_check(manager.gpu());
        }
    }

    /// A context is about to end: copies that are made in it end with it.
    pub(crate) fn end_context(&self, context: CUcontext) {
        if is(CANARY) {
            self.canaries.end_context(context);
        }
    }

    /// The device's contexts, and all its blocks, are gone.
    pub(crate) fn end_device(&self, device: CUdevice) {
        if !is_off() {
            self.pages.end_device(device);
            self.canaries.end_device(device);
        }
    }

    /// A call of the program returned an error that stays, for the first time.
    #[cold]
    pub(crate) fn faulted(&self, error: CUresult) {
        if error != CUresult::ILLEGAL_ADDRESS || !is(PAGE) || process::forked() {
            return;
        }
        preserve_errno(|| {
            let unit = registry::all().map(|manager| manager.gpu().granularity()).max().unwrap_or(0) as u64;
            let lines = self.pages.report(error, unit, &kernel_log::faults());
            lines.iter().for_each(|line| log::error!("guard: {line}"));
        });
    }

    /// The process ends: reports the tails that have arrived. The driver is not called any more.
    pub(crate) fn finish(&self) {
        if is(CANARY) {
            self.canaries.finish();
        }
    }

    /// For the statistics; `None` if nothing is guarded.
    pub(crate) fn statistics(&self) -> Option<wm_schema::GuardStats> {
        if is_off() {
            return None;
        }
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        let counters = &self.canaries.counters;
        Some(wm_schema::GuardStats {
            mode: if is(PAGE) { "page" } else { "canary" }.to_owned(),
            guarded: read(&counters.guarded) + self.pages.guarded(),
            looks: read(&counters.looks),
            overrun: read(&counters.overrun),
            unwatched: read(&counters.unwatched),
        })
    }
}
