//! Placement of blocks by what the program did one period ago ([`wm_memory::tiers`]).
//!
//! The predictor starts when the first block finds no room on the device. From then on launches,
//! allocations and frees of blocks of 4 MiB and more are told to the placement policy. The policy
//! answers with moves, which are made at a *stop*: a moment at which the GPU is idle. A launch or
//! an allocation waits for that for a bounded time. After a host wait the GPU is idle already.
//! After a stop the policy is told where all blocks lie.
//!
//! Invariants: the lock is not held across a driver call, nor while memory moves. One thread moves
//! memory at a time. What other threads do meanwhile is recorded.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use wm_abi::CUdevice;
use wm_driver::thread::Uncancelled;
use wm_driver::{Device, Gpu, Tier};
use wm_memory::tiers::{TierMove, TierPlacer, TierSettings};
use wm_memory::{Manager, MoveOrder, MoveRefusal, RangeMove};

use super::refusals::WhyNot;
use super::vain::{LOOK, PATIENCE};
use super::{last_use, obstacle, turns, vain};
use crate::gate::GATE;
use crate::launches::{self, Launch, LaunchedWork, Subscriber, TouchedBlock};
use crate::{process, registry};

/// Bytes of the smallest block that is recorded. Smaller blocks share their physical memory with
/// others. The 2 MiB segments in which PyTorch keeps small tensors do not repeat their addresses.
const SMALLEST: u64 = 4 << 20;

static PREDICTOR: Mutex<Option<Predictor>> = Mutex::new(None);

/// What is recorded of one device. There are no other devices in a process whose memory may move.
struct Predictor {
    device: CUdevice,
    placer: TierPlacer,
    /// Addresses of the recorded blocks, by the manager's numbers.
    blocks: FxHashMap<u64, Range<u64>>,
    since: Instant,
    moving: Arc<AtomicBool>,
}

fn lock() -> MutexGuard<'static, Option<Predictor>> {
    PREDICTOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Is what the program does recorded?
#[inline]
pub(crate) fn is_recording() -> bool {
    launches::has_subscribed(Subscriber::Predictor)
}

/// Starts to record: a block of this manager's found no room. Live blocks count as used when a
/// launch used them last.
pub(super) fn start(manager: &Manager<Device>) {
    if is_recording() {
        return;
    }
    let live = manager.blocks().into_iter().filter_map(|entry| manager.block(entry.address));
    let mut blocks: Vec<_> = live.filter(|block| block.tiers.total() >= SMALLEST).collect();
    // A block that no launch is known to have used is evicted last.
    blocks.sort_by_cached_key(|block| last_use::number_of(&range_of(block)).unwrap_or(u64::MAX));
    let mut predictor = Predictor {
        device: manager.gpu().ordinal(),
        placer: TierPlacer::new(TierSettings::of_capacity(0)),
        blocks: FxHashMap::default(),
        since: Instant::now(),
        moving: Arc::default(),
    };
    for block in &blocks {
        predictor.add(block);
    }
    *lock() = Some(predictor);
    launches::subscribe(Subscriber::Predictor);
    log::debug!("device {}: {} blocks are followed", manager.gpu().ordinal(), blocks.len());
}

/// Ends the recording: nothing moves any more in this process.
fn abandon() {
    launches::unsubscribe(Subscriber::Predictor);
    *lock() = None;
}

/// The program was given a block.
pub(super) fn allocated(manager: &Manager<Device>, address: u64) {
    let block = manager.block(address).filter(|block| block.tiers.total() >= SMALLEST);
    let Some(block) = block else { return };
    if let Some(predictor) = lock().as_mut().filter(|predictor| predictor.serves(manager)) {
        predictor.add(&block);
    }
}

/// The program gives a block back.
pub(super) fn freed(manager: &Manager<Device>, address: u64) {
    if !is_recording() {
        return;
    }
    let block = manager.block(address).filter(|block| block.address == address);
    let Some(block) = block else { return };
    if let Some(predictor) = lock().as_mut().filter(|predictor| predictor.serves(manager)) {
        predictor.remove(block.id);
    }
}

/// A kernel is about to be launched. Makes the moves that the policy wants for it and for the
/// launches after it.
pub(crate) fn launched(launch: &Launch) {
    if matches!(launch.work(), LaunchedWork::Graph(_)) || process::exiting() {
        return;
    }
    let Some(blocks) = launch.blocks() else { return };
    if GATE.pin_reason().is_some() {
        return abandon();
    }
    let plan = lock().as_mut().and_then(|predictor| predictor.launched(blocks));
    if let Some(plan) = plan {
        plan.execute(PATIENCE);
    }
}

/// A block of so many bytes has no room: others are evicted for it. Returns the bytes that moved.
pub(super) fn make_room(manager: &Manager<Device>, bytes: u64) -> u64 {
    execute_now(manager, PATIENCE, |placer, moves| placer.make_room(bytes, moves))
}

/// The driver needs so many bytes of the device. Returns the bytes that moved.
pub(super) fn leave(manager: &Manager<Device>, bytes: u64, patience: Duration) -> u64 {
    execute_now(manager, patience, |placer, moves| placer.leave(bytes, moves))
}

/// A stop for memory: the policy first learns where all blocks lie now.
fn execute_now(
    manager: &Manager<Device>,
    patience: Duration,
    ask: impl FnOnce(&mut TierPlacer, &mut Vec<TierMove>),
) -> u64 {
    let room = manager.device_room();
    let plan = lock().as_mut().filter(|predictor| predictor.serves(manager)).and_then(|predictor| {
        predictor.refresh(manager, room);
        predictor.plan(ask)
    });
    plan.map_or(0, |plan| plan.execute(patience))
}

/// The host has waited for the GPU.
pub(super) fn waited(manager: &Manager<Device>) {
    let plan = lock()
        .as_mut()
        .filter(|predictor| predictor.serves(manager))
        .and_then(|predictor| predictor.plan(TierPlacer::quiescent));
    if let Some(plan) = plan {
        plan.execute(LOOK);
    }
}

impl Predictor {
    fn serves(&self, manager: &Manager<Device>) -> bool {
        self.device == manager.gpu().ordinal()
    }

    fn add(&mut self, block: &wm_memory::Block) {
        self.blocks.insert(block.id, range_of(block));
        self.placer.placed(block.id, block.tiers.total(), bytes_in_place(block));
    }

    fn remove(&mut self, id: u64) {
        self.blocks.remove(&id);
        self.placer.free(id);
    }

    fn launched(&mut self, blocks: &[TouchedBlock]) -> Option<MovePlan> {
        let is_recorded = |block: &&TouchedBlock| block.device == self.device && block.bytes >= SMALLEST;
        let numbers: smallvec::SmallVec<[u64; 16]> =
            blocks.iter().filter(is_recorded).map(|block| block.id).collect();
        if vain::is_vain() {
            self.placer.used(&numbers);
            return None;
        }
        self.placer.tell_time(|| self.since.elapsed().as_secs_f64());
        self.plan(|placer, moves| placer.launch(&numbers, moves))
    }

    /// The moves that the policy wants; `None` while another thread moves memory. The policy learns
    /// where blocks lie when that thread has finished.
    fn plan(&mut self, ask: impl FnOnce(&mut TierPlacer, &mut Vec<TierMove>)) -> Option<MovePlan> {
        let mut moves = Vec::new();
        ask(&mut self.placer, &mut moves);
        if moves.is_empty() {
            return None;
        }
        let turn = MoveTurn::begin(&self.moving)?;
        let manager = registry::existing(self.device)?;
        let (numbers, ranges) = moves.into_iter().filter_map(|step| self.order(step)).unzip();
        Some(MovePlan { manager, numbers, ranges, _turn: turn })
    }

    fn order(&self, step: TierMove) -> Option<(u64, RangeMove)> {
        let (block, [from, to], bytes) = match step {
            TierMove::Leave { block, bytes } => (block, [Tier::Device, Tier::Host], bytes),
            TierMove::Come { block, bytes } => (block, [Tier::Host, Tier::Device], bytes),
        };
        let range = self.blocks.get(&block)?.clone();
        let order = MoveOrder { range, to, alone: false, discards: false };
        Some((block, RangeMove::new(order, bytes).only_from(from)))
    }

    /// Tells the policy where all blocks lie, and how many bytes they and `room` take on the
    /// device.
    fn refresh(&mut self, manager: &Manager<Device>, room: u64) {
        let mut on_device = 0;
        let mut gone = Vec::new();
        for (id, range) in &self.blocks {
            match manager.block(range.start).filter(|block| block.id == *id) {
                Some(block) => {
                    on_device += bytes_in_place(&block);
                    self.placer.correct(*id, bytes_in_place(&block));
                }
                None => gone.push(*id),
            }
        }
        gone.into_iter().for_each(|id| self.remove(id));
        self.placer.set_capacity(room.saturating_add(on_device));
    }
}

fn range_of(block: &wm_memory::Block) -> Range<u64> {
    block.address..block.address + block.tiers.total()
}

/// Bytes of a block that need no prefetch. Bytes on a peer GPU count: they are nearly as fast as
/// the device's own, and are not moved.
fn bytes_in_place(block: &wm_memory::Block) -> u64 {
    block.tiers.device + block.tiers.peer
}

/// The calling thread is the one that moves memory, until this is dropped.
struct MoveTurn(Arc<AtomicBool>);

impl MoveTurn {
    /// `None`: another thread moves memory.
    fn begin(moving: &Arc<AtomicBool>) -> Option<Self> {
        let is_taken = moving.swap(true, Ordering::Acquire);
        (!is_taken).then(|| Self(Arc::clone(moving)))
    }
}

impl Drop for MoveTurn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The moves of one stop, and the numbers of the blocks that they are of.
struct MovePlan {
    manager: &'static Manager<Device>,
    numbers: Vec<u64>,
    ranges: Vec<RangeMove>,
    _turn: MoveTurn,
}

impl MovePlan {
    /// Makes the moves once the GPU is idle, and tells the policy which were made. Returns the
    /// bytes that moved.
    fn execute(mut self, patience: Duration) -> u64 {
        let _whole = Uncancelled::new();
        let begin = Instant::now();
        if obstacle::of_process().is_none() {
            let is_made = self.move_all(Instant::now() + patience);
            if !is_made && patience == PATIENCE {
                vain::note();
            }
        }
        self.log(begin.elapsed());
        self.report();
        self.moved(Tier::Host) + self.moved(Tier::Device)
    }

    /// Bytes that moved to a tier.
    fn moved(&self, to: Tier) -> u64 {
        let there = self.ranges.iter().filter(|range| range.order.to == to);
        there.map(|range| range.moved.bytes).sum()
    }

    /// `took`: with the wait for the GPU.
    fn log(&self, took: Duration) {
        let [out, back] = [Tier::Host, Tier::Device].map(|to| self.moved(to) >> 20);
        let device = self.manager.gpu().ordinal();
        log::debug!("device {device}: {out} MiB out, {back} MiB in, {took:.1?}");
        for (number, RangeMove { order, moved, .. }) in self.numbers.iter().zip(&self.ranges) {
            let bytes = (order.range.end - order.range.start) >> 20;
            let (to, moved, stays) = (order.to, moved.bytes >> 20, moved.refusal);
            log::trace!("block {number} of {bytes} MiB: {moved} MiB to {to:?}, stays: {stays:?}");
        }
    }

    /// `false`: the GPU was busy until the time was over.
    fn move_all(&mut self, until: Instant) -> bool {
        let left = || until.saturating_duration_since(Instant::now());
        while self.manager.gpu().is_settled(left()).unwrap_or(false) {
            match turns::exchange(self.manager, &mut self.ranges) {
                // Other threads have submitted work meanwhile, or are about to.
                Some(WhyNot::Crowded | WhyNot::Refused(MoveRefusal::InUse)) if Instant::now() < until => {}
                _ => return true,
            }
        }
        false
    }

    /// Tells the policy where blocks lie now, and which of them cannot move.
    fn report(&self) {
        let room = self.manager.device_room();
        let mut predictor = lock();
        let serving = predictor.as_mut().filter(|predictor| predictor.serves(self.manager));
        let Some(predictor) = serving else { return };
        predictor.refresh(self.manager, room);
        for (number, range) in self.numbers.iter().zip(&self.ranges) {
            if self.cannot_move(range) {
                predictor.placer.keep(*number);
            }
        }
    }

    /// Nothing of the block moved, and nothing would at another stop.
    fn cannot_move(&self, range: &RangeMove) -> bool {
        let RangeMove { order, moved, .. } = range;
        // The bytes in place may lie on a peer.
        let is_on_peer = || self.manager.block(order.range.start).is_some_and(|block| block.tiers.peer > 0);
        moved.bytes == 0
            && match moved.refusal {
                Some(stays) => matches!(stays, MoveRefusal::Pinned | MoveRefusal::Unfit),
                None => order.to == Tier::Host && moved.next >= order.range.end && is_on_peer(),
            }
    }
}
