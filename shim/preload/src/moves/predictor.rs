//! Placement of the blocks of one device by what the program did one period ago
//! ([`wm_memory::tiers`]).
//!
//! Launches, allocations and frees of blocks of 4 MiB and more are told to the placement policy,
//! and it answers with moves, which [`super::stops`] makes. After a stop the policy is told where
//! all blocks lie.
//!
//! Where a block lies is asked anew only where it may have changed: for blocks that were to move,
//! and those beside them, which may lie on the same handles. So a stop costs the same however many
//! blocks there are.
//!
//! Invariant: nothing here makes a driver call or waits.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use wm_abi::CUdevice;
use wm_driver::{Device, Tier};
use wm_memory::tiers::{Placement, TierMove, TierPlacer, TierSettings};
use wm_memory::{Block, Manager, MoveOrder, RangeMove};

use super::rhythm::LaunchRhythm;
use super::touched_groups::TouchedGroups;
use super::wait_budget::WaitWorth;
use super::way_trial::{TrialClock, Way, WayTrial};
use crate::launches::TouchedBlock;

/// Bytes of the smallest block that is recorded. Smaller blocks share their physical memory with
/// others. The 2 MiB segments in which PyTorch keeps small tensors do not repeat their addresses.
pub(super) const SMALLEST: u64 = 4 << 20;

/// The record of one device. There are no other devices in a process whose memory may move.
pub(super) struct Predictor {
    device: CUdevice,
    pub(super) placer: TierPlacer,
    /// Addresses of the recorded blocks, by the manager's numbers.
    blocks: FxHashMap<u64, Range<u64>>,
    /// Their numbers by first address.
    addresses: BTreeMap<u64, u64>,
    /// Blocks that may lie elsewhere than the policy believes.
    doubtful: Vec<u64>,
    trial: WayTrial,
    rhythm: LaunchRhythm,
    /// The best way when another one was first tried, and where blocks lay.
    before_trial: Option<(Way, Placement)>,
    /// Where blocks are to lie after the next wait of the host.
    due: Option<Placement>,
    /// Launches are not recorded until then.
    recess: Option<Instant>,
    launches: u64,
    /// Launches since the last one at which a block was not on the device.
    quiet: u64,
    since: Instant,
}

/// After so many launches with all blocks on the device a shortage has passed, if there were two
/// periods among them. More where there are more blocks: to begin again takes time for each.
const PASSED: u64 = 4096;

impl Predictor {
    /// No block is recorded yet, and the device has no room. `is_careful`: nothing moves before it
    /// was measured what it costs to leave memory in place.
    pub(super) fn new(device: CUdevice, is_careful: bool) -> Self {
        let placer = TierPlacer::new(TierSettings::of_capacity(0));
        Self {
            device,
            placer,
            blocks: FxHashMap::default(),
            addresses: BTreeMap::new(),
            doubtful: Vec::new(),
            trial: WayTrial::new(is_careful),
            rhythm: LaunchRhythm::default(),
            before_trial: None,
            due: None,
            recess: None,
            launches: 0,
            quiet: 0,
            since: Instant::now(),
        }
    }

    pub(super) fn device(&self) -> CUdevice {
        self.device
    }

    /// Launches at which a block was not on the device.
    pub(super) fn launches(&self) -> u64 {
        self.launches
    }

    pub(super) fn count(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn add(&mut self, block: &Block) {
        self.blocks.insert(block.id, range_of(block));
        self.addresses.insert(block.address, block.id);
        self.placer.placed(block.id, block.tiers.total(), bytes_in_place(block));
    }

    pub(super) fn has(&self, id: u64) -> bool {
        self.blocks.contains_key(&id)
    }

    /// Blocks in a range may be able to move again, and those beside them.
    pub(super) fn unpin_range(&mut self, range: &Range<u64>) {
        let before = self.addresses.range(..range.start).next_back().map(|(_, id)| *id);
        let behind = self.addresses.range(range.start..).take_while(|(start, _)| **start <= range.end);
        let ids: Vec<u64> = before.into_iter().chain(behind.map(|(_, id)| *id)).collect();
        ids.into_iter().for_each(|id| self.placer.set_pinned(id, false));
    }

    pub(super) fn remove(&mut self, id: u64) {
        if let Some(range) = self.blocks.remove(&id)
            && self.addresses.get(&range.start) == Some(&id)
        {
            self.addresses.remove(&range.start);
        }
        self.placer.free(id);
    }

    pub(super) fn wait_worth(&self) -> WaitWorth {
        self.trial.worth()
    }

    /// May memory move after the host's own waits?
    pub(super) fn moves_after_waits(&self) -> bool {
        self.trial.worth() != WaitWorth::Costs || self.trial.is_arranging()
    }

    /// A wait has brought moves.
    pub(super) fn count_wait(&mut self) {
        self.trial.count_wait();
    }

    /// A kernel is about to be launched, or a graph. If `may_stop` grants a stop, adds the moves
    /// for the launch and for later ones; it is asked where a block is not on the device. `credit`
    /// tells the time that waits may take by now, and how often the host has waited itself.
    #[inline]
    pub(super) fn launched<W>(
        &mut self,
        (kernel, used): (u64, &TouchedGroups),
        credit: impl FnOnce() -> (Duration, u64),
        may_stop: impl FnOnce(WaitWorth) -> Option<W>,
        moves: &mut Vec<TierMove>,
    ) -> Option<W> {
        let device = self.device;
        let is_recorded = |block: &&TouchedBlock| block.device == device && block.bytes >= SMALLEST;
        let ids = used.iter().map(|group| group.iter().filter(is_recorded).map(|block| block.id));
        let (event, period) = self.placer.events();
        self.rhythm.launched(kernel, event);
        if self.placer.is_all_on_device() {
            self.quiet += 1;
            self.placer.used(ids);
            return None;
        }
        self.quiet = 0;
        self.launches += 1;
        let since = self.since;
        let clock = || {
            let (credit, host_waits) = credit();
            TrialClock {
                rhythm: self.rhythm.period(host_waits),
                event,
                time: since.elapsed(),
                host_waits,
                credit,
                elsewhere: self.placer.bytes_elsewhere(),
                host_bytes: self.placer.host_bytes(),
                is_arranged: self.placer.is_arranged(),
                reads_less: self.placer.reads_less(),
            }
        };
        if self.trial.record(event, period, clock) {
            log::debug!("device {device}: a period has {} events; {}", period.unwrap_or(0), self.trial);
            self.note_trial();
        }
        let worth = self.trial.worth();
        self.placer.set_eager(self.trial.way() == Way::Bring);
        let stop = may_stop(worth);
        match stop {
            Some(_) => self.placer.launch(ids, moves),
            None => self.placer.used(ids),
        }
        stop
    }

    /// A trial has begun or ended, or a period without one.
    fn note_trial(&mut self) {
        if let Some((best, tried)) = self.trial.beside_best() {
            let placer = &self.placer;
            self.before_trial.get_or_insert_with(|| (best, placer.placement()));
            self.due = (tried == Way::Leave).then(|| placer.home());
        } else if let Some(way) = self.trial.chosen() {
            let before = self.before_trial.take().filter(|(before, _)| *before == way);
            self.due = before.map(|(_, placement)| placement);
        }
        let recess = self.trial.take_recess().filter(|_| self.due.is_none() && self.placer.is_settled());
        self.recess = recess.map(|time| Instant::now() + time);
    }

    /// Where blocks are to lie, once: a trial has begun in which they lie where they were
    /// allocated, or ended without a gain.
    pub(super) fn take_due_placement(&mut self) -> Option<Placement> {
        self.due.take()
    }

    /// Are launches not recorded at present?
    pub(super) fn is_in_recess(&self) -> bool {
        self.recess.is_some()
    }

    /// The host has waited. Are launches recorded from now on that were not? `host_waits` tells how
    /// often it has, and is asked only then.
    pub(super) fn ends_recess(&mut self, host_waits: impl FnOnce() -> u64) -> bool {
        if self.recess.is_none_or(|end| Instant::now() < end) {
            return false;
        }
        self.recess = None;
        self.rhythm.break_off();
        let (event, time) = (self.placer.events().0, self.since.elapsed());
        let (host_waits, host_bytes) = (host_waits(), self.placer.host_bytes());
        self.trial.resume(TrialClock { event, time, host_waits, host_bytes, ..TrialClock::default() });
        true
    }

    /// Is new memory placed as without moves?
    pub(super) fn leaves_in_place(&self) -> bool {
        self.trial.leaves_in_place()
    }

    /// How long the shortage has lasted, if blocks change places at waits of the host.
    pub(super) fn arranges(&self) -> Option<Duration> {
        (self.trial.arranges() && self.due.is_none()).then(|| self.since.elapsed())
    }

    /// Is the shortage over, so that launches need not be recorded? A later one begins anew.
    #[inline]
    pub(super) fn has_passed(&self) -> bool {
        self.quiet >= PASSED && {
            let period = self.placer.events().1.unwrap_or(0);
            self.quiet >= period.saturating_mul(2).max(self.blocks.len() as u64)
        }
    }

    /// These moves are to be made, or were meant to be: where their blocks lie is asked later.
    pub(super) fn doubt(&mut self, moves: &[TierMove]) {
        let blocks =
            moves.iter().map(|(TierMove::Leave { block, .. } | TierMove::Come { block, .. })| *block);
        self.doubtful.extend(blocks);
    }

    /// The same for blocks at these addresses.
    pub(super) fn doubt_range(&mut self, range: &Range<u64>) {
        let before = self.addresses.range(..range.start).next_back();
        self.doubtful
            .extend(before.into_iter().chain(self.addresses.range(range.clone())).map(|(_, id)| *id));
    }

    /// A move as the manager takes it, and its block.
    pub(super) fn order(&self, step: TierMove) -> Option<(u64, RangeMove)> {
        let (block, [from, to], bytes) = match step {
            TierMove::Leave { block, bytes } => (block, [Tier::Device, Tier::Host], bytes),
            TierMove::Come { block, bytes } => (block, [Tier::Host, Tier::Device], bytes),
        };
        let range = self.blocks.get(&block)?.clone();
        let order = MoveOrder::new(range, to);
        Some((block, RangeMove::new(order, bytes).only_from(from)))
    }

    /// Tells the policy where doubtful blocks lie, and that there is so much room beside them.
    pub(super) fn refresh(&mut self, room: u64, find: impl Fn(u64) -> Option<Block>) {
        for id in std::mem::take(&mut self.doubtful) {
            let Some(start) = self.blocks.get(&id).map(|range| range.start) else { continue };
            self.correct(id, &find);
            self.correct_beside(start, Self::before, &find);
            self.correct_beside(start, Self::after, &find);
        }
        self.placer.set_room(room);
    }

    /// There is so much room beside the blocks.
    pub(super) fn set_room(&mut self, room: u64) {
        self.placer.set_room(room);
    }

    /// Corrects the blocks next to one that may have moved, as far as they have moved with it.
    fn correct_beside(
        &mut self,
        start: u64,
        next: fn(&Self, u64) -> Option<(u64, u64)>,
        find: &impl Fn(u64) -> Option<Block>,
    ) {
        let mut at = start;
        while let Some((address, id)) = next(self, at) {
            if !self.correct(id, find) {
                break;
            }
            at = address;
        }
    }

    fn before(&self, address: u64) -> Option<(u64, u64)> {
        self.addresses.range(..address).next_back().map(|(address, id)| (*address, *id))
    }

    fn after(&self, address: u64) -> Option<(u64, u64)> {
        self.addresses.range(address + 1..).next().map(|(address, id)| (*address, *id))
    }

    /// Asks where a block lies. `true`: not where the policy believed.
    fn correct(&mut self, id: u64, find: &impl Fn(u64) -> Option<Block>) -> bool {
        let Some(start) = self.blocks.get(&id).map(|range| range.start) else { return false };
        match find(start).filter(|block| block.id == id) {
            Some(block) => self.placer.correct(id, bytes_in_place(&block)),
            None => {
                self.remove(id);
                true
            }
        }
    }

    pub(super) fn serves(&self, manager: &Manager<Device>) -> bool {
        self.device == manager.gpu().ordinal()
    }
}

pub(super) fn range_of(block: &Block) -> Range<u64> {
    block.address..block.address + block.tiers.total()
}

/// Bytes of a block that need no prefetch. Bytes on a peer GPU count: they are nearly as fast as
/// the device's own, and are not moved.
fn bytes_in_place(block: &Block) -> u64 {
    block.tiers.device + block.tiers.peer
}

#[cfg(test)]
mod tests {
    //! Hazard (use after free): a move names a block that is gone, or whose address is another
    //! block's by now.
    use wm_memory::{Order, TierBytes};

    use super::*;

    const BYTES: u64 = 8 << 20;

    fn block(id: u64, device: u64) -> Block {
        let tiers = TierBytes { device, peer: 0, host: BYTES - device };
        Block { address: id * BYTES, bytes: BYTES as usize, id, order: Order::Device, tiers }
    }

    fn touched(id: u64) -> TouchedBlock {
        TouchedBlock { address: id * BYTES, bytes: BYTES, id, device: 0 }
    }

    fn groups(blocks: &[TouchedBlock]) -> TouchedGroups {
        let mut used = TouchedGroups::default();
        used.add_each(blocks);
        used
    }

    /// Two blocks on a device with room for one; the second is on the host.
    fn full_device() -> Predictor {
        let mut predictor = Predictor::new(0, false);
        predictor.add(&block(1, BYTES));
        predictor.add(&block(2, 0));
        predictor.refresh(0, |_| None);
        predictor
    }

    /// Moves of launches that use the second block again and again.
    fn moves(predictor: &mut Predictor, touched: TouchedBlock, can_stop: bool) -> Vec<TierMove> {
        let mut moves = Vec::new();
        for _ in 0..1000 {
            predictor.launched(
                (7, &groups(&[touched])),
                || (Duration::ZERO, 0),
                |_| can_stop.then_some(()),
                &mut moves,
            );
        }
        moves
    }

    #[test]
    fn a_block_that_is_used_comes_and_an_idle_one_leaves_for_it() {
        let mut predictor = full_device();
        let moves = moves(&mut predictor, touched(2), true);
        let expected =
            [TierMove::Leave { block: 1, bytes: BYTES }, TierMove::Come { block: 2, bytes: BYTES }];
        assert_eq!(moves, expected);
        let [leaves, comes] = expected.map(|step| predictor.order(step).expect("a live block").1);
        assert_eq!((leaves.order.range, leaves.order.to), (BYTES..2 * BYTES, Tier::Host));
        assert_eq!((comes.order.range, comes.order.to), (2 * BYTES..3 * BYTES, Tier::Device));
    }

    #[test]
    fn without_stops_launches_are_recorded_and_nothing_moves() {
        assert_eq!(moves(&mut full_device(), touched(2), false), []);
    }

    #[test]
    fn small_blocks_and_those_of_other_devices_are_not_recorded() {
        for other in
            [TouchedBlock { bytes: SMALLEST - 1, ..touched(2) }, TouchedBlock { device: 1, ..touched(2) }]
        {
            assert_eq!(moves(&mut full_device(), other, true), []);
        }
    }

    #[test]
    fn a_block_that_is_gone_is_not_moved() {
        let mut predictor = full_device();
        predictor.remove(1);
        let leave = TierMove::Leave { block: 1, bytes: BYTES };
        assert!(predictor.order(leave).is_none());
        let mut predictor = full_device();
        // Another block lies at the first one's address.
        predictor.doubt(&[leave, TierMove::Come { block: 2, bytes: BYTES }]);
        predictor.refresh(0, |address| (address == BYTES).then(|| Block { id: 9, ..block(1, BYTES) }));
        assert!(predictor.order(leave).is_none() && predictor.count() == 0);
    }

    /// Hazard (latency): a stop asks for each block of the program where it lies.
    #[test]
    fn a_stop_asks_for_the_blocks_that_moved_and_those_beside_them_however_many_there_are() {
        let asked = |count: u64| {
            let mut predictor = Predictor::new(0, false);
            (1..=count).for_each(|id| predictor.add(&block(id, BYTES)));
            predictor.doubt(&[TierMove::Leave { block: 50, bytes: BYTES }]);
            let asked = std::cell::RefCell::new(Vec::new());
            predictor.refresh(0, |address| {
                asked.borrow_mut().push(address / BYTES);
                // The neighbour before it left with it.
                Some(block(address / BYTES, if [49, 50].contains(&(address / BYTES)) { 0 } else { BYTES }))
            });
            assert!(!predictor.placer.is_all_on_device());
            predictor.refresh(0, |_| panic!("nothing is doubtful"));
            asked.into_inner()
        };
        assert_eq!(asked(100), [50, 49, 48, 51]);
        assert_eq!(asked(100_000), [50, 49, 48, 51]);
    }

    /// Hazard (latency): a launch is recorded for the rest of the process after one shortage.
    #[test]
    fn a_shortage_passes_when_all_has_been_on_the_device_for_long() {
        let mut predictor = full_device();
        let launch = |predictor: &mut Predictor, count| {
            for _ in 0..count {
                predictor.launched(
                    (7, &groups(&[touched(2)])),
                    || (Duration::ZERO, 0),
                    |_| None::<()>,
                    &mut Vec::new(),
                );
            }
        };
        launch(&mut predictor, 2 * PASSED);
        assert!(!predictor.has_passed(), "a block is on the host");
        predictor.doubt(&[TierMove::Come { block: 2, bytes: BYTES }]);
        predictor.refresh(0, |address| Some(block(address / BYTES, BYTES)));
        launch(&mut predictor, PASSED - 1);
        assert!(!predictor.has_passed());
        launch(&mut predictor, PASSED);
        assert!(predictor.has_passed());
    }
}
