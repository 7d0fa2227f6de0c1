//! Canaries: when tails are written and checked.
//!
//! | moment | effect |
//! |---|---|
//! | allocation in a stream | the pattern is written in that stream, ahead of all that the program does with the block |
//! | `cuMemAlloc` | it is written in our own stream, and given a moment; a free in a stream is ordered behind it |
//! | `cuMemFreeAsync` | the tail is fetched in the stream of the free, before the memory is reused, and compared when it has arrived |
//! | `cuMemFree` | the tail is compared at once, after the wait that the driver makes too |
//! | a wait of the host | at most [`CHECKS`] tails are fetched and compared, the next ones in turn |

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use wm_abi::{CUcontext, CUdevice};
use wm_driver::lock;
use wm_memory::Order;

use super::call::{CallOrder, SyncTarget, identify};
use super::counters::{CanaryCounters, Unwatched};
use super::guarded_block::GuardedBlock;
use super::pattern::Damage;
use super::tail_copies::{CopiesByDevice, TailCopies, TailGpu};
use super::watched_blocks::{Entry, Pattern, Scope, Taken, WatchedBlocks, Written};
use crate::process::{self, streams};

/// Tails that are checked when the host waits. A program waits often; with more blocks than this
/// they take turns.
const CHECKS: usize = 64;

/// Tails that are fetched together.
const AT_ONCE: usize = 256;

/// Deferred checks that a free asks about.
const ASKED: usize = 16;

/// The canaries of a process. No lock is held across a call of the GPU.
pub(super) struct Canaries<G: TailGpu> {
    watched: Mutex<WatchedBlocks>,
    /// Notified when a check has ended.
    check_ended: Condvar,
    copies: CopiesByDevice<G>,
    pub(super) counters: CanaryCounters,
}

/// The state of the watched blocks when a wait of the host began.
pub(crate) struct Moment {
    serial: u64,
    scope: Option<Scope>,
    found_by: &'static str,
}

impl<G: TailGpu> Canaries<G> {
    pub(super) const fn new() -> Self {
        Self {
            watched: Mutex::new(WatchedBlocks::new()),
            check_ended: Condvar::new(),
            copies: CopiesByDevice::new(),
            counters: CanaryCounters::new(),
        }
    }

    fn watched(&self) -> MutexGuard<'_, WatchedBlocks> {
        lock(&self.watched)
    }

    /// Writes the pattern behind a block that was just allocated, and watches it. A block that
    /// cannot be watched is counted.
    pub(super) fn watch(
        &self,
        gpu: &'static G,
        block: impl FnOnce() -> Option<GuardedBlock>,
        range: (u64, usize),
        order: Order,
        call: CallOrder,
    ) {
        let outcome = self.write_pattern(gpu, range, order, call).and_then(|pattern| {
            // Before the lock is taken: the block's origin asks the loader.
            let block = block().ok_or(Unwatched::Refused)?;
            self.watched().enter(block, pattern);
            self.counters.guarded.fetch_add(1, Relaxed);
            Ok(())
        });
        outcome.unwrap_or_else(|why| self.counters.count_unwatched(why));
    }

    fn write_pattern(
        &self,
        gpu: &'static G,
        (address, bytes): (u64, usize),
        order: Order,
        call: CallOrder,
    ) -> Result<Pattern, Unwatched> {
        if gpu.is_capturing() {
            return Err(Unwatched::Captured);
        }
        let copies = self.copies.of(gpu).ok_or(Unwatched::Refused)?;
        let CallOrder::Stream(context, stream) = call else {
            let is_there = copies.write_now(address, bytes).map_err(|_| Unwatched::Refused)?;
            return Ok(if is_there { Pattern::There } else { Pattern::InOurs });
        };
        let stream = identify(order, context, stream);
        copies.write(stream, address, bytes).map_err(|_| Unwatched::Refused)?;
        Ok(Pattern::In(Written { stream, context }))
    }

    /// Checks a block that is about to be given back, and watches it no longer. `found_by` is the
    /// driver function that frees it.
    pub(super) fn check_before_free(
        &self,
        gpu: &'static G,
        address: u64,
        order: Order,
        call: CallOrder,
        found_by: &'static str,
    ) {
        if let Some(entry) = self.remove_when_idle(address) {
            let checked = self.recheck(gpu, *entry, order, call, found_by);
            checked.unwrap_or_else(|why| self.counters.count_unwatched(why));
        }
    }

    /// Removes a block from the watched ones. If another thread is checking it, waits for the
    /// check: a few small copies in a stream of ours, which wait for none of the program's work.
    fn remove_when_idle(&self, address: u64) -> Option<Box<Entry>> {
        let mut watched = self.watched();
        loop {
            match watched.begin_free(address) {
                Taken::Out(entry) => return Some(entry),
                Taken::Unknown => return None,
                Taken::BeingChecked => {
                    watched = self.check_ended.wait(watched).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn recheck(
        &self,
        gpu: &'static G,
        entry: Entry,
        order: Order,
        call: CallOrder,
        found_by: &'static str,
    ) -> Result<(), Unwatched> {
        if entry.told || process::exiting() {
            return Ok(());
        }
        if gpu.is_capturing() {
            return Err(Unwatched::Captured);
        }
        let copies = self.copies.existing(gpu).ok_or(Unwatched::Refused)?;
        self.report_deferred(&copies, ASKED);
        match call {
            CallOrder::Device => self.check_now(&copies, &entry, found_by),
            CallOrder::Stream(context, stream) => {
                self.counters.looks.fetch_add(1, Relaxed);
                let stream = identify(order, context, stream);
                copies.compare_after_free(stream, entry.ours, entry.block, found_by)
            }
            CallOrder::Unknown => Err(Unwatched::Refused),
        }
    }

    /// Checks a block of `cuMemFree`, which has waited as the driver's does. For a block of a
    /// pool that call waits for nothing: the caller guarantees that no work uses the block. A
    /// pattern may still be under way then, and a wait for it could be one for a stream that this
    /// thread holds up, so the block is not checked.
    fn check_now(&self, copies: &TailCopies<G>, entry: &Entry, found_by: &str) -> Result<(), Unwatched> {
        if entry.unknown.is_some() {
            return Err(Unwatched::Early);
        }
        let damages = copies.compare(std::slice::from_ref(&entry.block));
        self.counters.looks.fetch_add(damages.len() as u64, Relaxed);
        let seen = damages.first().ok_or(Unwatched::Busy)?;
        seen.iter().for_each(|damage| self.report(&entry.block, damage, found_by));
        Ok(())
    }

    /// Reports deferred checks whose tail has arrived. Asks about `most` of them.
    fn report_deferred(&self, copies: &TailCopies<G>, most: usize) {
        for (late, damage) in copies.arrived(most) {
            damage.iter().for_each(|damage| self.report(&late.block, damage, late.freed_by));
        }
    }

    fn report(&self, block: &GuardedBlock, damage: &Damage, found_by: &str) {
        self.counters.overrun.fetch_add(1, Relaxed);
        log::error!("guard: a write past the end of {block}: {damage}; found by {found_by}");
    }

    /// The host is about to wait for the target.
    pub(super) fn moment(&self, target: &SyncTarget) -> Moment {
        let (scope, found_by) = match target {
            SyncTarget::Stream(context, stream) => {
                (Some(Scope::Stream(streams().identify(*context, *stream))), "a wait for a stream")
            }
            SyncTarget::Context(context) => (Some(Scope::Context(*context)), "a wait for the device"),
            SyncTarget::Event => (None, "a wait for an event"),
        };
        Moment { serial: self.watched().moment(), scope, found_by }
    }

    /// The host has waited: patterns that were written before are in their place.
    pub(super) fn waited(&self, gpu: &'static G, moment: &Moment) {
        if let Some(scope) = moment.scope {
            self.watched().waited(scope, moment.serial);
        }
        self.check_some(gpu, CHECKS, moment.found_by);
    }

    /// Checks every block whose pattern is known to be there: the context ends.
    pub(super) fn final_check(&self, gpu: &'static G) {
        self.check_some(gpu, usize::MAX, "the end of a context");
    }

    /// Checks `most` blocks, the next ones in turn.
    fn check_some(&self, gpu: &'static G, most: usize, found_by: &str) {
        if gpu.is_capturing() {
            return;
        }
        let Some(copies) = self.copies.existing(gpu) else { return };
        self.report_deferred(&copies, usize::MAX);
        let blocks = self.watched().choose(gpu.ordinal(), most);
        blocks.chunks(AT_ONCE).for_each(|blocks| self.check_blocks(&copies, blocks, found_by));
    }

    /// Checks blocks that were chosen for it. A thread that frees one meanwhile waits.
    fn check_blocks(&self, copies: &TailCopies<G>, blocks: &[GuardedBlock], found_by: &str) {
        let _checking = Checking { canaries: self, blocks };
        let damages = copies.compare(blocks);
        self.counters.looks.fetch_add(damages.len() as u64, Relaxed);
        for (block, damage) in blocks.iter().zip(&damages) {
            let new = self.watched().seen(block.address, damage.is_some());
            if let Some((block, damage)) = new.zip(damage.as_ref()) {
                self.report(&block, damage, found_by);
            }
        }
    }

    /// A block has ended with its context.
    pub(super) fn forget(&self, address: u64) {
        self.watched().remove(address);
    }

    /// A context is about to end: copies that are made in it end with it.
    pub(super) fn end_context(&self, context: CUcontext) {
        self.copies.close(|gpu| gpu.context() == context);
    }

    /// A device's contexts have ended, and its blocks with them.
    pub(super) fn end_device(&self, ended: CUdevice) {
        self.watched().end_device(ended);
        self.copies.close(|gpu| gpu.ordinal() == ended);
    }

    /// The process ends: compares the tails that have arrived, without a call of the driver.
    pub(super) fn finish(&self) {
        self.copies.finish(|late, damage| self.report(&late.block, damage, late.freed_by));
    }
}

/// Blocks that this thread checks. They can be freed again once this is dropped, after a panic
/// too.
struct Checking<'a, G: TailGpu> {
    canaries: &'a Canaries<G>,
    blocks: &'a [GuardedBlock],
}

impl<G: TailGpu> Drop for Checking<'_, G> {
    fn drop(&mut self) {
        let mut watched = self.canaries.watched();
        self.blocks.iter().for_each(|block| watched.checked(block.address));
        self.canaries.check_ended.notify_all();
    }
}

#[cfg(test)]
mod tests;
