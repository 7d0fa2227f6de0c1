//! Giving memory and address space back: trimming, relieving the driver, dropping idle views, and
//! the end of a context.
//!
//! Memory that is given back is taken out of the state first, under the lock, so that no other
//! thread can choose it; then the driver is called. Nothing is unmapped before all work that may
//! touch it is past.

use std::ops::Range;
use std::time::Instant;

use wm_abi::CUresult;
use wm_driver::{Gpu, Tier};

use super::Manager;
use crate::books::free_cache::FlushScope;
use crate::state::State;
use crate::sync::MutexGuard;
use crate::vocabulary::plan::Undo;
use crate::vocabulary::settings::Rules;

impl<G: Gpu> Manager<G> {
    /// Gives wholly free memory of the device back until at most `keep` bytes are reserved, idle
    /// memory of other tiers aside; returns the bytes given back. Asks how far streams have come,
    /// and waits for none: memory that may still be touched stays. A program that trims its pool
    /// wants room on the device. Memory of the host takes ten times as long to make.
    pub fn trim(&self, keep: u64) -> u64 {
        self.give_back(Some(Tier::Device), |state| state.held_but_idle_elsewhere().saturating_sub(keep))
    }

    /// Another call of the driver ran out of device memory: gives at least `bytes` of it back if
    /// that much is idle; returns the bytes given back.
    pub fn relieve(&self, bytes: u64) -> u64 {
        self.relieve_tier(Tier::Device, bytes)
    }

    /// The same of all other tiers.
    pub fn give_back_elsewhere(&self) -> u64 {
        self.tiers_elsewhere().map(|tier| self.relieve_tier(tier, u64::MAX)).sum()
    }

    /// The tiers that memory may lie on beside the device. A pause takes it to the host even where
    /// none may overflow.
    fn tiers_elsewhere(&self) -> impl Iterator<Item = Tier> {
        let others = self.rules.settings.overflow.iter().copied();
        others.filter(|tier| !matches!(tier, Tier::Device | Tier::Host)).chain([Tier::Host])
    }

    /// The same of any tier.
    pub(super) fn relieve_tier(&self, tier: Tier, bytes: u64) -> u64 {
        let before = self.lock().holdings.held().on(tier);
        self.give_back(Some(tier), |state| {
            bytes.saturating_sub(before.saturating_sub(state.holdings.held().on(tier)))
        })
    }

    /// The program has freed memory without a stream, and waited, or it has done nothing for a
    /// while: gives back the idle memory of the device beyond the part that is kept for its next
    /// need, and the memory of other tiers that it has not used for a while. Returns when to look
    /// again, if some memory is left that may go by then. `keeps_device`: the device's stays, as
    /// the program wants it.
    pub fn give_back_idle(&self, keeps_device: bool) -> Option<Instant> {
        let now = Instant::now();
        let mut state = self.lock();
        let excess = if keeps_device { 0 } else { state.excess_on_device(&self.rules, now) };
        let elsewhere = state.excess_elsewhere(now);
        let held = state.holdings.held().device;
        drop(state);
        let mut given = 0;
        if excess > 0 {
            let left =
                |state: &State| excess.saturating_sub(held.saturating_sub(state.holdings.held().device));
            given = self.release(Some(Tier::Device), &left);
            self.lock().pool.keep.gave(given, Instant::now());
        }
        let tiers = self.tiers_elsewhere().filter(|_| elsewhere > 0);
        given += tiers.map(|tier| self.release(Some(tier), &|_| elsewhere)).sum::<u64>();
        // Memory that work may still touch stays, and the end of that work is seen in a call of
        // the program's.
        let is_stuck = excess + elsewhere > 0 && given == 0;
        if is_stuck { None } else { self.lock().next_look(self.rules.settings.keep_idle, keeps_device) }
    }

    /// First the memory known to be ready, then the memory that proves to be.
    fn give_back(&self, tier: Option<Tier>, wanted: impl Fn(&State) -> u64) -> u64 {
        let ready = self.release(tier, &wanted);
        let mut state = self.lock();
        if wanted(&state) == 0 {
            return ready;
        }
        let queries = state.timeline.queries(None, usize::MAX);
        drop(state);
        if queries.is_empty() {
            return ready;
        }
        self.run_queries(queries);
        ready + self.release(tier, &wanted)
    }

    /// Tries the steps once more that failed before, and those that waited for the end of copies.
    pub(super) fn take_left_steps(&self) {
        self.release(None, &|_| 0);
    }

    fn release(&self, tier: Option<Tier>, wanted: &impl Fn(&State) -> u64) -> u64 {
        let mut state = self.wait_until(|state| !state.under_way.is_pinned());
        // It may take minutes, and the thread may be one that answers questions.
        if state.under_way.is_borrowed() {
            return 0;
        }
        state.flush(FlushScope::All);
        let bytes = wanted(&state);
        let steps = state.take_idle(tier, bytes);
        self.carry_out_undo(state, &steps)
    }

    /// Carries out steps that were taken out of the state, in order, without its lock; returns the
    /// bytes given back.
    pub(super) fn carry_out_undo(&self, mut state: MutexGuard<'_, State>, steps: &[Undo]) -> u64 {
        state.under_way.begin();
        let epoch = state.under_way.epoch();
        drop(state);
        let failed = self.dismantle(steps);
        let released = self.lock().taken_apart(steps, failed, epoch);
        self.show();
        self.waiters.notify();
        released
    }

    /// Unmaps the views that have been idle longest, if there are too many.
    pub(super) fn evict(&self) {
        self.take_apart(|state| state.take_views(self.rules.settings.stitch_views));
    }

    /// Unmaps the idle views of the memory that leaves the device next.
    pub(super) fn evict_views_of(&self, range: &Range<u64>, most: u64) {
        self.take_apart(|state| state.take_views_of(range, most));
    }

    fn take_apart(&self, choose: impl FnOnce(&mut State) -> Vec<Undo>) {
        let mut state = self.lock();
        let steps = choose(&mut state);
        if !steps.is_empty() {
            self.carry_out_undo(state, &steps);
        }
    }

    /// Peer access has changed: grants access anew in every range that is mapped. Nothing moves
    /// meanwhile.
    ///
    /// # Errors
    /// The driver's first; the other ranges are tried all the same.
    pub fn refresh_access(&self) -> Result<(), CUresult> {
        let mut state = self.wait_until(|state| state.under_way.is_none());
        state.under_way.pin();
        let ledger = &state.holdings.ledger;
        let ranges =
            ledger.extents().mapped_ranges(|key| ledger.is_foreign(key), |key| ledger.is_adopted(key));
        drop(state);
        let allow = |(range, foreign): &(Range<u64>, bool)| {
            self.allow(range.start, (range.end - range.start) as usize, !foreign)
        };
        let first = ranges.iter().filter_map(|range| allow(range).err()).next();
        self.lock().under_way.unpin();
        self.waiters.notify();
        first.map_or(Ok(()), Err)
    }

    /// The context is gone: forgets everything, and gives back the handles and addresses that can
    /// be given back. Errors are expected and ignored.
    pub fn discard(&self) {
        let (steps, fences) = self.wait_until(|state| !state.under_way.is_moving()).forget_all();
        drop(self.dismantle(&steps));
        self.recycle(fences);
        self.show();
        self.waiters.notify();
    }
}

impl State {
    /// Bytes of the device that are idle and not kept. What is beyond the limit is not.
    fn excess_on_device(&mut self, rules: &Rules, now: Instant) -> u64 {
        self.end_period(rules, now);
        let (pieces, limits) = (self.pool.idle(Tier::Device), &rules.settings);
        let beyond = match self.limits.keeps_idle {
            true => self.held().device.saturating_sub(self.limits.in_force()).min(self.idle_on_device()),
            false => self.idle_on_device(),
        };
        self.pool.excess(self.idle_on_device(), pieces, limits.keep_idle, limits.keep_most).max(beyond)
    }

    /// Tells the pool which memory was idle throughout a period, if one is over.
    pub(super) fn end_period(&mut self, rules: &Rules, now: Instant) {
        if self.pool.keep.has_ended_period(now) {
            let used = self.program.take_recent_peak();
            let unused = self.holdings.held().device.saturating_sub(used).min(self.idle_on_device());
            self.pool.end_period(unused, rules.settings.keep_idle);
        }
    }

    /// Bytes of other tiers that are idle and not kept.
    fn excess_elsewhere(&mut self, now: Instant) -> u64 {
        let used = self.counters.overflows + self.moves.out_bytes;
        match self.holdings.ledger.handles().idle_bytes().elsewhere() {
            0 => 0,
            idle if !self.limits.keeps_idle => idle,
            idle => self.pool.keep_elsewhere.excess(idle, used, now),
        }
    }

    /// Bytes that are held, less the idle ones of other tiers.
    fn held_but_idle_elsewhere(&self) -> u64 {
        let idle = self.holdings.ledger.handles().idle_bytes().elsewhere();
        self.holdings.held().total().saturating_sub(idle)
    }

    pub(super) fn idle_on_device(&self) -> u64 {
        self.holdings.ledger.handles().idle_bytes().device + self.program.cached_bytes()
    }

    /// When memory that is idle now may go, at the earliest.
    fn next_look(&self, stated: u64, keeps_device: bool) -> Option<Instant> {
        let idle = [self.idle_on_device(), self.pool.idle(Tier::Device)];
        let is_left = !keeps_device && self.pool.excess(idle[0], idle[1], stated, 0) > 0;
        let device = is_left.then(|| self.pool.keep.next_look()).flatten();
        let is_elsewhere = self.holdings.ledger.handles().idle_bytes().elsewhere() > 0;
        let elsewhere = is_elsewhere.then(|| self.pool.keep_elsewhere.next_look()).flatten();
        device.into_iter().chain(elsewhere).min()
    }

    /// Notes the results of the steps that give back; returns the bytes that were released. Where
    /// the context went meanwhile, nothing of it is counted any more.
    pub(super) fn taken_apart(&mut self, steps: &[Undo], failed: Vec<Undo>, epoch: u64) -> u64 {
        self.under_way.end();
        let mut bytes = 0;
        if epoch != self.under_way.epoch() {
            return bytes;
        }
        for step in steps.iter().filter(|step| !failed.contains(step)) {
            if let Undo::Release { tier, bytes: length, .. } = step {
                self.released(*tier, *length);
                bytes += length;
            }
        }
        self.quarantine(failed);
        bytes
    }
}
