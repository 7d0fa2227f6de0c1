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
        let mut idle: Vec<_> = all.filter_map(|(number, (_, since))| Some(((*since)?, *number))).collect();
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
