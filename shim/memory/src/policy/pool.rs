//! The owner of a GPU's idle memory: the handles of pieces that the program has given up, and how
//! much stays idle of them and of the blocks' handles together.
//!
//! A piece gets a handle of its own kind only, the longest idle one. A handle that is *reserved* is
//! for a piece that the program has made and not mapped yet, so it is not given back. Blocks find
//! their idle handles in the ledger, by size: the pool is told how many bytes these are.
//!
//! Invariants: a handle is idle once; of each kind at least as many handles are idle as are
//! reserved; bytes are either held by the program or idle, and both count against one limit.
//!
//! A plain value: the caller passes in the time and the memory that the driver has left.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use wm_driver::Tier;

use crate::policy::keep::{Keep, KeepElsewhere};
use crate::vocabulary::piece::{PieceAccount, PieceKind};
use crate::vocabulary::tiers::TierBytes;

/// Idle memory, and the rules for its release.
#[derive(Debug, Default)]
pub struct HandlePool {
    idle: BTreeMap<PieceKind, IdlePieces>,
    account: PieceAccount,
    pub(crate) keep: Keep,
    pub(crate) keep_elsewhere: KeepElsewhere,
    /// The least that was idle of pieces on the device since the period began, in bytes.
    least: u64,
    /// The same of the whole last period, until it is asked for.
    unused: u64,
    /// Bytes that may be made on the device before the driver is asked again.
    unasked: u64,
}

#[derive(Debug, Default)]
struct IdlePieces {
    /// When each became idle, and its number.
    by_age: BTreeSet<(u64, u64)>,
    reserved: usize,
}

impl IdlePieces {
    fn spare(&self) -> usize {
        self.by_age.len().saturating_sub(self.reserved)
    }
}

impl HandlePool {
    /// A handle is idle from now on.
    pub fn park(&mut self, kind: PieceKind, since: u64, number: u64) {
        self.idle.entry(kind).or_default().by_age.insert((since, number));
    }

    /// An idle handle is about to be released, and counts as held until it is discharged. `false`:
    /// it is not in the pool.
    pub fn unpark(&mut self, kind: PieceKind, since: u64, number: u64) -> bool {
        let is_idle = self.idle.entry(kind).or_default().by_age.remove(&(since, number));
        *self.account.held.bytes_mut(kind.tier) += if is_idle { kind.bytes } else { 0 };
        self.note_least();
        is_idle
    }

    /// A piece gets the idle handle `number`. It gives up the handle `before`, which is idle from
    /// now on, or else the reservation that it had. Each handle is told with the time since when it
    /// is idle.
    pub fn bind(&mut self, kind: PieceKind, number: (u64, u64), before: Option<(u64, u64)>) {
        let idle = self.idle.entry(kind).or_default();
        idle.by_age.remove(&number);
        match before {
            Some(before) => drop(idle.by_age.insert(before)),
            None => self.end_reservation(kind),
        }
    }

    /// A piece of this kind needs no handle any more.
    pub fn end_reservation(&mut self, kind: PieceKind) {
        let idle = self.idle.entry(kind).or_default();
        idle.reserved = idle.reserved.saturating_sub(1);
    }

    /// The longest idle handle of a kind.
    pub fn oldest(&self, kind: PieceKind) -> Option<u64> {
        self.idle.get(&kind)?.by_age.first().map(|(_, number)| *number)
    }

    /// The longest idle handle on a tier of so many bytes, if there is one whose kind is not
    /// reserved, and its kind.
    pub fn oldest_on(&self, tier: Tier, bytes: u64) -> Option<(PieceKind, u64)> {
        let spare = self
            .idle
            .iter()
            .filter(|(kind, idle)| (kind.tier, kind.bytes) == (tier, bytes) && idle.spare() > 0);
        let oldest = spare.filter_map(|(kind, idle)| Some((*idle.by_age.first()?, *kind)));
        oldest.min().map(|((_, number), kind)| (kind, number))
    }

    /// Takes the longest idle handle of a tier out of the pool, if there is one whose kind is not
    /// reserved. It counts as held until it is discharged.
    pub fn take_spare(&mut self, tier: Tier) -> Option<(PieceKind, u64)> {
        let spare = self.idle.iter_mut().filter(|(kind, idle)| kind.tier == tier && idle.spare() > 0);
        let oldest = spare.filter_map(|(kind, idle)| Some((*idle.by_age.first()?, *kind, idle)));
        let (first, kind, idle) = oldest.min_by_key(|(first, kind, _)| (*first, *kind))?;
        idle.by_age.remove(&first);
        *self.account.held.bytes_mut(kind.tier) += kind.bytes;
        self.note_least();
        Some((kind, first.1))
    }

    /// Bytes on a tier that are idle and not reserved.
    pub fn idle(&self, tier: Tier) -> u64 {
        let kinds = self.idle.iter().filter(|(kind, _)| kind.tier == tier);
        kinds.map(|(kind, idle)| kind.bytes * idle.spare() as u64).sum()
    }

    /// Bytes of pieces on a tier, held by the program or idle.
    pub(crate) fn bytes(&self, tier: Tier) -> u64 {
        self.account.held.on(tier) + self.idle(tier)
    }

    /// The account of the device's pieces.
    pub fn account(&self) -> PieceAccount {
        PieceAccount { idle: self.idle_bytes(), ..self.account }
    }

    /// Bytes that are idle and not reserved.
    pub(crate) fn idle_bytes(&self) -> TierBytes {
        TierBytes { device: self.idle(Tier::Device), peer: 0, host: self.idle(Tier::Host) }
    }

    /// Counts a piece that is about to be made, unless pieces and the `blocks`' bytes exceed the
    /// limit then. Says whether it did.
    pub(crate) fn charge(&mut self, tier: Tier, bytes: u64, blocks: u64, limit: u64) -> bool {
        let other = if limit == u64::MAX { 0 } else { self.idle(tier).saturating_add(blocks) };
        let held = self.account.held.bytes_mut(tier);
        let fits = held.checked_add(bytes).is_some_and(|sum| sum <= limit.saturating_sub(other));
        *held += if fits { bytes } else { 0 };
        fits
    }

    /// The memory is gone, or was never made.
    pub fn discharge(&mut self, tier: Tier, bytes: u64) {
        let held = self.account.held.bytes_mut(tier);
        *held = held.saturating_sub(bytes);
    }

    /// A piece has moved.
    pub(crate) fn moved(&mut self, bytes: u64, [from, to]: [Tier; 2]) {
        self.discharge(from, bytes);
        *self.account.held.bytes_mut(to) += bytes;
        self.account.peaks.raise_to(&self.account.held);
    }

    /// Reserves an idle handle for a piece, and counts the piece. Says whether there is one.
    pub fn reserve(&mut self, kind: PieceKind) -> bool {
        let Some(idle) = self.idle.get_mut(&kind).filter(|idle| idle.spare() > 0) else { return false };
        idle.reserved += 1;
        *self.account.held.bytes_mut(kind.tier) += kind.bytes;
        self.count(kind.tier);
        self.note_least();
        true
    }

    /// Less is idle than before.
    fn note_least(&mut self) {
        self.least = self.least.min(self.idle(Tier::Device));
    }

    /// A piece was made for which memory is charged. `is_cached`: its handle becomes idle when the
    /// program gives it up.
    pub(crate) fn made(&mut self, tier: Tier, bytes: u64, is_cached: bool, now: Instant) {
        self.count(tier);
        if is_cached && tier == Tier::Device {
            self.keep.made(bytes, now);
        }
    }

    fn count(&mut self, tier: Tier) {
        self.account.overflows += u64::from(tier != Tier::Device);
        self.account.peaks.raise_to(&self.account.held);
    }

    /// A piece was refused, because all tiers were full.
    pub fn refused(&mut self) {
        self.account.refused += 1;
    }

    /// The part of one owner's `idle` bytes that may go, beside the other owner's. At least
    /// `stated` bytes stay of both together; `most` bounds the memory that stays because the
    /// program soon made such memory again, and 0 is for none of that.
    pub(crate) fn excess(&self, idle: u64, other: u64, stated: u64, most: u64) -> u64 {
        self.keep.excess(idle + other.min(stated), stated, most).min(idle)
    }

    /// A period is over in which so many bytes of blocks' memory were idle throughout.
    pub(crate) fn end_period(&mut self, blocks: u64, stated: u64) {
        let idle = self.idle(Tier::Device);
        self.unused = std::mem::replace(&mut self.least, idle).min(idle);
        self.keep.unused(blocks + self.unused, stated);
    }

    /// Bytes of pieces on the device that were idle throughout the last period and since, beyond
    /// the amount stated for both owners. Answered once a period.
    pub(crate) fn take_unused(&mut self, blocks: u64, stated: u64) -> u64 {
        let unused = std::mem::take(&mut self.unused).min(self.least);
        unused.saturating_sub(stated.saturating_sub(blocks))
    }

    /// May so many bytes be made on the device without a query of the driver for its free memory?
    pub(crate) fn is_unasked(&mut self, bytes: u64) -> bool {
        let rest = self.unasked.checked_sub(bytes);
        self.unasked = rest.unwrap_or(self.unasked);
        rest.is_some()
    }

    /// The device has so much left beside the headroom: is that enough? Half of the rest may be
    /// made without asking again, since other processes make memory, too.
    pub(crate) fn is_beside_headroom(&mut self, left: u64, bytes: u64) -> bool {
        let rest = left.checked_sub(bytes);
        self.unasked = rest.unwrap_or(0) / 2;
        rest.is_some()
    }

    /// The context is gone, and idle memory with it. The program still holds its pieces.
    pub(crate) fn forget_idle(&mut self) {
        *self = Self { account: self.account, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (use after free): a handle has two owners, or idle memory is given back that a
    //! piece was promised. Hazard (out of memory): more is held than the limit allows, or other
    //! processes find no memory.
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;
    const TIERS: [Tier; 2] = [Tier::Device, Tier::Host];

    fn kind(tier: Tier, bytes: u64) -> PieceKind {
        PieceKind { device: 0, tier, bytes, handle_types: 1, rdma: false }
    }

    #[test]
    fn a_charge_stops_at_the_limit_of_its_tier() {
        let mut pool = HandlePool::default();
        assert!(pool.charge(Tier::Device, 6, 0, 10) && !pool.charge(Tier::Device, 5, 0, 10));
        assert!(!pool.charge(Tier::Device, 4, 1, 10), "the blocks have the rest");
        assert!(pool.charge(Tier::Host, 5, 0, 10));
        assert!(!pool.charge(Tier::Device, u64::MAX, 0, u64::MAX));
        pool.discharge(Tier::Device, 6);
        assert_eq!(pool.account().held, TierBytes { device: 0, peer: 0, host: 5 });
        pool.park(kind(Tier::Device, 7), 1, 1);
        assert!(!pool.charge(Tier::Device, 4, 0, 10) && pool.charge(Tier::Device, 3, 0, 10), "7 are idle");
    }

    #[test]
    fn the_stated_amount_is_for_blocks_and_pieces_together() {
        let pool = HandlePool::default();
        for (idle, other, goes) in [(5, 0, 4), (5, 1, 5), (1, 0, 0), (1, 1, 1), (5, 9, 5), (0, 9, 0)] {
            assert_eq!(pool.excess(idle * GIB, other * GIB, GIB, 0), goes * GIB, "{idle} beside {other}");
            assert_eq!(pool.excess(idle * GIB, other * GIB, GIB, 9 * GIB), goes * GIB);
        }
    }

    /// Hazard: PyTorch empties its cache, makes as much again, and has each page made anew.
    #[test]
    fn memory_that_was_made_again_stays_whichever_owner_gave_it_back() {
        let (mut pool, now) = (HandlePool::default(), Instant::now());
        pool.keep.gave(4 * GIB, now);
        pool.made(Tier::Device, 4 * GIB, true, now);
        assert_eq!(pool.excess(5 * GIB, 0, GIB, 9 * GIB), 0);
        assert_eq!(pool.excess(5 * GIB, 0, GIB, 0), 4 * GIB, "the program makes room for others");
        let mut pool = HandlePool::default();
        pool.keep.gave(4 * GIB, now);
        pool.made(Tier::Device, 4 * GIB, false, now);
        pool.made(Tier::Host, 4 * GIB, true, now + Duration::from_millis(1));
        assert_eq!(pool.excess(5 * GIB, 0, GIB, 9 * GIB), 4 * GIB, "it will not be idle here");
    }

    #[test]
    fn pieces_that_were_idle_throughout_a_period_go_once() {
        let mut pool = HandlePool::default();
        (0..8).for_each(|number| pool.park(kind(Tier::Device, GIB), number, number));
        pool.end_period(0, GIB);
        assert_eq!(pool.take_unused(0, GIB), 0, "it began with nothing idle");
        assert!(pool.reserve(kind(Tier::Device, GIB)));
        pool.end_period(0, GIB);
        assert_eq!(pool.take_unused(0, GIB), 6 * GIB);
        assert_eq!(pool.take_unused(0, GIB), 0);
        pool.end_period(0, GIB);
        assert_eq!(pool.take_unused(GIB, GIB), 7 * GIB, "the blocks keep the stated amount");
        pool.end_period(0, GIB);
        (0..3).for_each(|_| assert!(pool.reserve(kind(Tier::Device, GIB))));
        assert_eq!(pool.take_unused(0, GIB), 3 * GIB, "some were used since");
    }

    /// Hazard: after a shortage the stated amount goes back to the driver as well, and the program
    /// has each page made anew.
    #[test]
    fn pieces_that_went_back_since_a_period_do_not_go_twice() {
        let mut pool = HandlePool::default();
        (0..8).for_each(|number| pool.park(kind(Tier::Device, GIB), number, number));
        (0..2).for_each(|_| pool.end_period(0, GIB));
        (0..7).for_each(|_| assert!(pool.take_spare(Tier::Device).is_some()));
        assert_eq!((pool.take_unused(0, GIB), pool.idle(Tier::Device)), (0, GIB));
    }

    /// Hazard: the driver has no memory left for a kernel's code, although pieces could have gone
    /// to the host.
    #[test]
    fn pieces_end_at_the_headroom_however_often_the_driver_is_asked() {
        let (mut free, mut asked, mut pool) = (10_000u64, 0, HandlePool::default());
        loop {
            if !pool.is_unasked(20) {
                asked += 1;
                if !pool.is_beside_headroom(free.saturating_sub(1000), 20) {
                    break;
                }
            }
            free -= 20;
        }
        assert!((1000..1020).contains(&free), "{free} left");
        assert!(asked < 20, "asked {asked} times");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Make(usize, u64),
        Reserve(usize, u64),
        Bind(usize),
        Exchange(usize),
        Drop(usize),
        Park(usize),
        GiveBack(usize),
        Vanish(usize),
        EndPeriod,
        TakeUnused(u64, u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..2usize, 1..4u64).prop_map(|(tier, bytes)| Step::Make(tier, bytes)),
            4 => (0..2usize, 1..4u64).prop_map(|(tier, bytes)| Step::Reserve(tier, bytes)),
            3 => (0..20usize).prop_map(Step::Bind),
            1 => (0..20usize).prop_map(Step::Exchange),
            1 => (0..20usize).prop_map(Step::Drop),
            4 => (0..20usize).prop_map(Step::Park),
            2 => (0..2usize).prop_map(Step::GiveBack),
            1 => (0..20usize).prop_map(Step::Vanish),
            1 => Just(Step::EndPeriod),
            1 => (0..4u64, 0..4u64).prop_map(|(blocks, stated)| Step::TakeUnused(blocks, stated)),
        ];
        prop::collection::vec(step, 1..100)
    }

    /// The model: each handle with its kind, and since when it is idle; pieces without a handle.
    #[derive(Default)]
    struct Model {
        pool: HandlePool,
        handles: BTreeMap<u64, (PieceKind, Option<u64>)>,
        reserved: Vec<PieceKind>,
        time: u64,
    }

    impl Model {
        const LIMIT: u64 = 12;

        fn idle(&self, fits: impl Fn(&PieceKind) -> bool) -> Vec<(u64, u64)> {
            let all = self.handles.iter().filter(|(_, (kind, _))| fits(kind));
            let mut idle: Vec<_> =
                all.filter_map(|(number, (_, since))| Some(((*since)?, *number))).collect();
            idle.sort_unstable();
            idle
        }

        fn nth(&self, index: usize, is_idle: bool) -> Option<u64> {
            let fits = self.handles.iter().filter(|(_, (_, since))| since.is_some() == is_idle);
            fits.map(|(number, _)| *number).nth(index)
        }

        fn apply(&mut self, step: &Step) {
            self.time += 1;
            match *step {
                Step::Make(tier, bytes) => {
                    let kind = kind(TIERS[tier], bytes);
                    let held: u64 = self
                        .handles
                        .values()
                        .map(|(other, _)| other)
                        .filter(|other| other.tier == kind.tier)
                        .map(|other| other.bytes)
                        .sum();
                    let is_charged = self.pool.charge(kind.tier, bytes, 0, Self::LIMIT);
                    assert_eq!(is_charged, held + bytes <= Self::LIMIT);
                    if is_charged {
                        self.handles.insert(self.time, (kind, None));
                    }
                }
                Step::Reserve(tier, bytes) => {
                    let kind = kind(TIERS[tier], bytes);
                    let reserved = self.reserved.iter().filter(|other| **other == kind).count();
                    let is_reserved = self.pool.reserve(kind);
                    assert_eq!(is_reserved, self.idle(|other| *other == kind).len() > reserved);
                    self.reserved.extend(is_reserved.then_some(kind));
                }
                Step::Bind(index) if index < self.reserved.len() => {
                    let kind = self.reserved.swap_remove(index);
                    let number = self.pool.oldest(kind).expect("at least as many are idle as are reserved");
                    assert_eq!(self.idle(|other| *other == kind)[0].1, number, "the longest idle one");
                    let since = self.handles.get_mut(&number).and_then(|(_, since)| since.take());
                    let since = since.expect("it is idle, and in no other hand");
                    self.pool.bind(kind, (since, number), None);
                }
                Step::Exchange(index) => {
                    let Some(before) = self.nth(index, false) else { return };
                    let kind = self.handles[&before].0;
                    let Some(number) = self.pool.oldest(kind) else { return };
                    let since = self.handles.get_mut(&number).and_then(|(_, since)| since.take());
                    let since = since.expect("it is idle, and in no other hand");
                    self.handles.get_mut(&before).expect("just found").1 = Some(self.time);
                    self.pool.bind(kind, (since, number), Some((self.time, before)));
                }
                Step::Drop(index) if index < self.reserved.len() => {
                    let kind = self.reserved.swap_remove(index);
                    self.pool.end_reservation(kind);
                    self.pool.discharge(kind.tier, kind.bytes);
                }
                Step::Park(index) => {
                    let Some(number) = self.nth(index, false) else { return };
                    let (kind, since) = self.handles.get_mut(&number).expect("just found");
                    *since = Some(self.time);
                    self.pool.park(*kind, self.time, number);
                    self.pool.discharge(kind.tier, kind.bytes);
                }
                Step::GiveBack(tier) => {
                    let Some((kind, number)) = self.pool.take_spare(TIERS[tier]) else {
                        assert_eq!(self.pool.idle(TIERS[tier]), 0);
                        return;
                    };
                    let (_, since) = self.handles.remove(&number).expect("it is there");
                    assert!(kind.tier == TIERS[tier] && since.is_some());
                    self.release(kind);
                }
                Step::Vanish(index) => {
                    let Some(number) = self.nth(index, true) else { return };
                    let kind = self.handles[&number].0;
                    let reserved = self.reserved.iter().filter(|other| **other == kind).count();
                    if self.idle(|other| *other == kind).len() > reserved {
                        let since = self.handles.remove(&number).and_then(|(_, since)| since);
                        assert!(self.pool.unpark(kind, since.expect("it is idle"), number));
                        self.release(kind);
                    }
                }
                Step::EndPeriod => self.pool.end_period(0, 0),
                Step::TakeUnused(blocks, stated) => {
                    let idle = self.pool.idle(Tier::Device);
                    let goes = self.pool.take_unused(blocks, stated);
                    assert!(goes <= idle.saturating_sub(stated.saturating_sub(blocks)), "{goes} of {idle}");
                }
                Step::Bind(_) | Step::Drop(_) => {}
            }
        }

        /// Hazard: memory that the driver has not taken back yet counts no more, and another device
        /// pins as much.
        fn release(&mut self, kind: PieceKind) {
            let same_tier = self.handles.values().filter(|(other, _)| other.tier == kind.tier);
            let others: u64 = same_tier.map(|(other, _)| other.bytes).sum();
            assert_eq!(self.pool.bytes(kind.tier), others + kind.bytes);
            self.pool.discharge(kind.tier, kind.bytes);
        }

        fn check(&self) {
            for tier in TIERS {
                let all = |idle: bool| {
                    let fits = self
                        .handles
                        .values()
                        .filter(|(kind, since)| kind.tier == tier && since.is_some() == idle);
                    fits.map(|(kind, _)| kind.bytes).sum::<u64>()
                };
                let reserved: u64 =
                    self.reserved.iter().filter(|kind| kind.tier == tier).map(|kind| kind.bytes).sum();
                let account = self.pool.account();
                assert_eq!(
                    (account.held.on(tier), account.idle.on(tier)),
                    (all(false) + reserved, all(true) - reserved)
                );
                assert!(self.pool.bytes(tier) <= Self::LIMIT);
            }
        }
    }

    proptest! {
        #[test]
        fn each_handle_has_one_owner_and_all_count_against_the_limit(steps in steps()) {
            let mut model = Model::default();
            for step in steps {
                model.apply(&step);
                model.check();
            }
        }
    }
}
