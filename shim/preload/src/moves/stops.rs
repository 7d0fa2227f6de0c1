//! Stops: the moments at which the GPU is idle and blocks move as the predictor wants.
//!
//! The predictor starts when the first block finds no room on the device, and ends when that has
//! passed. A launch or an allocation waits for an idle GPU as [`super::waits`] allows. After a host
//! wait the GPU may be idle already.
//!
//! Invariants: the predictor's lock is not held across a driver call, nor while memory moves. One
//! thread moves memory at a time; the predictor records what other threads do meanwhile.

use std::ops::Range;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use wm_abi::CUdevice;
use wm_driver::thread::Uncancelled;
use wm_driver::{Device, Gpu, Tier, lock};
use wm_memory::tiers::{TierMove, TierPlacer};
use wm_memory::{Manager, MoveRefusal, RangeMove};

use super::pieces::addresses;
use super::predictor::{Predictor, SMALLEST, range_of};
use super::refusals::WhyNot;
use super::slices::SliceCost;
use super::spans::SizedKernel;
use super::touched_groups::TouchedGroups;
use super::wait_budget::WAIT;
use super::waits::GrantedWait;
use super::{Migrations, pin_reason};
use crate::gate::GATE;
use crate::launches::{self, Launch, LaunchedWork, Subscriber};
use crate::{process, registry};

impl Migrations {
    fn predictor(&self) -> MutexGuard<'_, Option<Predictor>> {
        lock(&self.predictor)
    }

    /// The device whose blocks are recorded.
    pub(super) fn predicted_device(&self) -> Option<CUdevice> {
        self.predictor().as_ref().map(Predictor::device)
    }

    pub(super) fn with_predictor<R>(
        &self,
        manager: &Manager<Device>,
        ask: impl FnOnce(&mut Predictor) -> R,
    ) -> Option<R> {
        self.predictor().as_mut().filter(|predictor| predictor.serves(manager)).map(ask)
    }

    /// Starts to record: a block of this manager's found no room. Live blocks count as used when a
    /// launch used them last.
    pub(super) fn start_predictor(&self, manager: &Manager<Device>) {
        if self.is_recording() {
            return;
        }
        manager.expect_moves();
        let mut blocks = manager.large_blocks(SMALLEST);
        // A block that no launch is known to have used is evicted last.
        blocks.sort_by_cached_key(|block| self.last_use.number_of(&range_of(block)).unwrap_or(u64::MAX));
        let mut fresh = Predictor::new(manager.gpu().ordinal(), self.is_careful());
        blocks.iter().for_each(|block| fresh.add(block));
        fresh.refresh(manager.device_room(), |_| None);
        log::debug!("device {}: {} blocks are followed", fresh.device(), fresh.count());
        {
            let mut predictor = self.predictor();
            // Two threads may have met the first shortage.
            if predictor.is_some() {
                return;
            }
            *predictor = Some(fresh);
            self.has_predictor.store(true, Ordering::Relaxed);
            launches::subscribe(Subscriber::Predictor);
        }
        self.add_new_blocks(manager);
    }

    /// Blocks that the program was given while the recording began.
    fn add_new_blocks(&self, manager: &Manager<Device>) {
        let blocks = manager.large_blocks(SMALLEST);
        self.with_predictor(manager, |predictor| {
            for block in &blocks {
                if !predictor.has(block.id) {
                    predictor.add(block);
                }
            }
        });
    }

    /// Ends the recording: nothing moves any more in this process, or all is on the device.
    fn end_recording(&self, predictor: &mut Option<Predictor>) {
        launches::unsubscribe(Subscriber::Predictor);
        self.has_predictor.store(false, Ordering::Relaxed);
        *predictor = None;
    }

    /// Launches are recorded again, if they were not for a time that is over.
    pub(super) fn end_recess(&self, manager: &Manager<Device>) {
        let host_waits = || self.waits.credit().1;
        if self.with_predictor(manager, |predictor| predictor.ends_recess(host_waits)) == Some(true) {
            launches::subscribe(Subscriber::Predictor);
        }
    }

    /// The recording ends, as at the end of a shortage.
    pub(super) fn forget_predictor(&self) {
        self.end_recording(&mut self.predictor());
    }

    /// The program was given a block.
    pub(super) fn record_block(&self, manager: &Manager<Device>, address: u64) {
        let block = manager.block(address).filter(|block| block.tiers.total() >= SMALLEST);
        if let Some(block) = block {
            self.with_predictor(manager, |predictor| predictor.add(&block));
        }
    }

    /// The program gives a block back.
    pub(super) fn record_free(&self, manager: &Manager<Device>, address: u64) {
        let block = manager.block(address).filter(|block| block.address == address);
        if let Some(block) = block {
            self.with_predictor(manager, |predictor| predictor.remove(block.id));
        }
    }

    /// A kernel is about to be launched. Makes the moves that the policy wants for it and for the
    /// launches after it.
    pub(crate) fn launched(&self, launch: &mut Launch) {
        if process::exiting() {
            return;
        }
        let mut used = TouchedGroups::default();
        let kernel = match launch.work() {
            LaunchedWork::Kernel(function) => {
                let Some(blocks) = launch.blocks() else { return };
                used.add_each(blocks);
                let by = SizedKernel { kernel: function.0 as u64, numbers: launch.numbers() };
                self.add_pieces(addresses(launch.words()), by, &mut used);
                by.kernel
            }
            LaunchedWork::Graph(executable) => {
                let named = self.graphs.used_by(executable);
                used.add_each(&launches::blocks_around(&named));
                let by = SizedKernel { kernel: executable.0 as u64, numbers: &[] };
                self.add_pieces(named.into_iter(), by, &mut used);
                by.kernel
            }
        };
        let mut predictor = self.predictor();
        let Some(recording) = predictor.as_mut() else { return };
        if GATE.is_pinned() {
            return self.end_recording(&mut predictor);
        }
        if recording.has_passed() {
            log::debug!("device {}: the shortage has passed", recording.device());
            return self.end_recording(&mut predictor);
        }
        let mut moves = Vec::new();
        let credit = || self.waits.credit();
        let wait =
            recording.launched((kernel, &used), credit, |worth| self.waits.of_launch(worth), &mut moves);
        if recording.is_in_recess() {
            launches::unsubscribe(Subscriber::Predictor);
        }
        let Some(wait) = wait else { return };
        let paces = wait.paces(recording.launches(), &self.waits);
        let paced = paces.then_some(recording.device());
        let plan = self.plan(recording, moves);
        drop(predictor);
        match (plan, paced) {
            (Some(plan), _) => drop(plan.execute(&wait)),
            (None, Some(device)) => self.pace(device, &wait),
            (None, None) => {}
        }
    }

    /// A launch waits for the GPU although it moves nothing, so that a later one finds it idle.
    #[cold]
    fn pace(&self, device: CUdevice, wait: &GrantedWait<'_>) {
        // Beside moves the call waits at the gate, too.
        if self.is_moving.load(Ordering::Acquire) {
            return;
        }
        let Some(manager) = registry::existing(device) else { return };
        let _whole = Uncancelled::new();
        let (holds, begin) = (GATE.holds(), Instant::now());
        let is_idle = manager.gpu().is_settled(wait.limit).unwrap_or(false);
        if is_idle {
            self.waits.end_holds(holds);
        }
        wait.end(begin.elapsed(), is_idle);
    }

    /// A stop for memory: the policy first learns how much room there is. Returns the bytes that
    /// moved.
    pub(super) fn stop_now(
        &self,
        manager: &Manager<Device>,
        wait: &GrantedWait<'_>,
        ask: impl FnOnce(&mut TierPlacer, &mut Vec<TierMove>),
    ) -> u64 {
        let room = manager.device_room();
        let plan = self.with_predictor(manager, |predictor| {
            predictor.refresh(room, |address| manager.block(address));
            self.ask(predictor, ask)
        });
        plan.flatten().map_or(0, |plan| plan.execute(wait))
    }

    /// A stop where the host has waited for the GPU.
    pub(super) fn stop_after_wait(
        &self,
        manager: &Manager<Device>,
        look: GrantedWait<'_>,
        ask: impl FnOnce(&mut TierPlacer, &mut Vec<TierMove>),
    ) {
        let plan = self.with_predictor(manager, |predictor| self.ask(predictor, ask));
        if let Some(plan) = plan.flatten() {
            MovePlan { loads_code: true, ..plan }.execute(&look);
        }
    }

    /// Blocks in this range may have moved otherwise.
    pub(super) fn doubt(&self, manager: &Manager<Device>, range: &Range<u64>) {
        self.with_predictor(manager, |predictor| predictor.doubt_range(range));
    }

    /// Blocks in these ranges may move again.
    pub(super) fn release(&self, ranges: &[Range<u64>]) {
        if let Some(predictor) = self.predictor().as_mut() {
            ranges.iter().for_each(|range| predictor.unpin_range(range));
        }
    }

    fn ask(
        &self,
        predictor: &mut Predictor,
        ask: impl FnOnce(&mut TierPlacer, &mut Vec<TierMove>),
    ) -> Option<MovePlan<'_>> {
        let mut moves = Vec::new();
        ask(&mut predictor.placer, &mut moves);
        self.plan(predictor, moves)
    }

    /// `None` if there is nothing to move, or while another thread moves memory. The policy learns
    /// at the next stop where the blocks lie.
    #[cold]
    fn plan(&self, predictor: &mut Predictor, moves: Vec<TierMove>) -> Option<MovePlan<'_>> {
        if moves.is_empty() {
            return None;
        }
        predictor.doubt(&moves);
        let mover = SoleMover::begin(&self.is_moving)?;
        let manager = registry::existing(predictor.device())?;
        let (ids, ranges) = moves.into_iter().filter_map(|step| predictor.order(step)).unzip();
        Some(MovePlan { moves: self, manager, ids, ranges, loads_code: false, _mover: mover })
    }
}

/// The calling thread is the one that moves memory, until this is dropped.
pub(super) struct SoleMover<'a>(&'a AtomicBool);

impl<'a> SoleMover<'a> {
    /// `None`: another thread moves memory.
    pub(super) fn begin(is_moving: &'a AtomicBool) -> Option<Self> {
        let is_other = is_moving.swap(true, Ordering::Acquire);
        (!is_other).then(|| Self(is_moving))
    }
}

impl Drop for SoleMover<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The moves of one stop, and the ids of the blocks that they are of.
struct MovePlan<'a> {
    moves: &'a Migrations,
    manager: &'static Manager<Device>,
    ids: Vec<u64>,
    ranges: Vec<RangeMove>,
    /// Code of the library's may be loaded first.
    loads_code: bool,
    _mover: SoleMover<'a>,
}

impl MovePlan<'_> {
    /// Makes the moves once the GPU is idle, if that is within the wait, and tells the policy which
    /// were made. Returns the bytes that moved.
    fn execute(mut self, wait: &GrantedWait<'_>) -> u64 {
        let _whole = Uncancelled::new();
        let (begin, mut making) = (Instant::now(), Duration::ZERO);
        if pin_reason::of_process().is_none() {
            let (waited, made_for) = self.move_all(wait);
            let has_moved = self.moved(Tier::Host) + self.moved(Tier::Device) > 0;
            wait.end(waited, has_moved);
            wait.made(made_for);
            making = made_for;
            if has_moved {
                self.moves.with_predictor(self.manager, Predictor::count_wait);
            }
        }
        self.log(begin.elapsed(), making);
        self.report();
        self.moved(Tier::Host) + self.moved(Tier::Device)
    }

    /// Bytes that moved to a tier.
    fn moved(&self, to: Tier) -> u64 {
        let there = self.ranges.iter().filter(|range| range.order.to == to);
        there.map(|range| range.moved.bytes).sum()
    }

    /// `took`: with the wait for the GPU, and the time in which memory was made.
    fn log(&self, took: Duration, making: Duration) {
        let [out, back] = [Tier::Host, Tier::Device].map(|to| self.moved(to) >> 20);
        let device = self.manager.gpu().ordinal();
        log::debug!(
            "device {device}: {out} MiB out, {back} MiB in, {took:.1?}, of which {making:.1?} made memory"
        );
        for (id, RangeMove { order, moved, .. }) in self.ids.iter().zip(&self.ranges) {
            let bytes = (order.range.end - order.range.start) >> 20;
            let (to, moved, stays) = (order.to, moved.bytes >> 20, moved.refusal);
            log::trace!("block {id} of {bytes} MiB: {moved} MiB to {to:?}, stays: {stays:?}");
        }
    }

    /// Waits for an idle GPU, and moves. Returns the time without a move, of the wait and of moves
    /// that were refused, and the time in which memory was made.
    fn move_all(&mut self, wait: &GrantedWait<'_>) -> (Duration, Duration) {
        let (mut begin, mut made_for, limit) = (Instant::now(), Duration::ZERO, wait.limit);
        loop {
            let holds = GATE.holds();
            let left = limit.saturating_sub(begin.elapsed());
            match self.manager.gpu().is_settled(left.min(WAIT)) {
                Ok(true) => {}
                // Meanwhile the host may have come to hold a stream.
                Ok(false) if left > WAIT && !self.moves.waits.is_held() && !process::exiting() => continue,
                _ => return (begin.elapsed(), made_for),
            }
            self.moves.waits.end_holds(holds);
            let waited = begin.elapsed();
            if self.loads_code && self.ranges.iter().any(|range| range.order.to == Tier::Device) {
                self.moves.load_code(self.manager);
            }
            let makes_for = wait.makes_for.saturating_sub(made_for);
            let (left, cost) = (limit.saturating_sub(waited), SliceCost { makes_for, ..SliceCost::USUAL });
            let end = self.moves.swap_at(self.manager, &mut self.ranges, left, cost);
            // While memory was made, nothing was waited for.
            (begin, made_for) = (begin + end.made_for, made_for + end.made_for);
            match end.why {
                None => return (waited, made_for),
                // Other threads have submitted work meanwhile, or are about to.
                Some(WhyNot::Crowded | WhyNot::Refused(MoveRefusal::InUse)) if begin.elapsed() < limit => {}
                Some(_) if self.moved(Tier::Host) + self.moved(Tier::Device) > 0 => {
                    return (waited, made_for);
                }
                Some(_) => return (begin.elapsed(), made_for),
            }
        }
    }

    /// Tells the policy where blocks lie now, and which of them cannot move.
    fn report(&self) {
        let room = self.manager.device_room();
        self.moves.with_predictor(self.manager, |predictor| {
            predictor.refresh(room, |address| self.manager.block(address));
            for (id, range) in self.ids.iter().zip(&self.ranges) {
                if self.cannot_move(range) {
                    predictor.placer.set_pinned(*id, true);
                }
            }
        });
    }

    /// Nothing of the block moved, and nothing would at another stop.
    fn cannot_move(&self, range: &RangeMove) -> bool {
        let RangeMove { order, moved, .. } = range;
        // The bytes in place may lie on a peer.
        let is_on_peer = || self.manager.block(order.range.start).is_some_and(|block| block.tiers.peer > 0);
        moved.bytes == 0
            && match moved.refusal {
                Some(stays) => {
                    matches!(
                        stays,
                        MoveRefusal::Pinned
                            | MoveRefusal::InPlace
                            | MoveRefusal::InGraph
                            | MoveRefusal::Unfit
                    )
                }
                None => order.to == Tier::Host && moved.next >= order.range.end && is_on_peer(),
            }
    }
}
