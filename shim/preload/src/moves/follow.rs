//! Placement by what the program did a period ago ([`wm_memory::tiers`]), from the first time on that a block finds no room. Until then nothing is noted here.
//!
//! Launches, allocations and frees of blocks of 4 MiB and more are told to the policy. What it wants to move at a *stop* moves while the GPU has nothing to do: who launches or
//! allocates waits for that, for a bounded time, and who has waited himself finds it so. Afterwards the policy is told where all blocks lie.
//!
//! Invariants: the lock is not held across a driver call, nor while memory moves; one thread moves at a time, and what others do meanwhile is noted.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use wm_abi::CUdevice;
use wm_driver::{Device, Gpu, Tier};
use wm_memory::tiers::{TierMove, TierPlacer, TierSettings};
use wm_memory::{Manager, MoveOrder, RangeMove, Stays};

use super::refusals::WhyNot;
use super::vain::{LOOK, PATIENCE};
use super::{obstacle, pace, recency, turns, vain};
use crate::launches::TouchedBlock;
use crate::{gate, registry};

/// Smaller blocks are not followed: they share their memory with others. So do the segments of 2 MiB in which PyTorch keeps small tensors, which are never where they were a period ago.
const LEAST: u64 = 4 << 20;

/// Is anything noted?
static FOLLOWS: AtomicBool = AtomicBool::new(false);

static FOLLOWED: Mutex<Option<Followed>> = Mutex::new(None);

/// One device: there are no others where memory may move.
struct Followed {
    device: CUdevice,
    placer: TierPlacer,
    /// By their numbers.
    blocks: FxHashMap<u64, Range<u64>>,
    since: Instant,
    /// A thread moves memory.
    is_moving: bool,
}

fn followed() -> MutexGuard<'static, Option<Followed>> {
    FOLLOWED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Is what the program does noted?
#[inline]
pub(crate) fn is_on() -> bool {
    FOLLOWS.load(Relaxed)
}

/// A block found no room: from now on what the program does is noted. Blocks that live count as used when a launch used them last.
pub(super) fn begin(manager: &Manager<Device>) {
    if is_on() {
        return;
    }
    let live = manager.blocks().into_iter().filter_map(|entry| manager.block(entry.address));
    let mut blocks: Vec<_> = live.filter(|block| block.tiers.total() >= LEAST).collect();
    let range = |block: &wm_memory::Block| block.address..block.address + block.tiers.total();
    // In doubt a block leaves last.
    blocks.sort_by_cached_key(|block| recency::last(&range(block)).unwrap_or(u64::MAX));
    let mut new = Followed {
        device: manager.gpu().ordinal(),
        placer: TierPlacer::new(TierSettings::of_capacity(0)),
        blocks: FxHashMap::default(),
        since: Instant::now(),
        is_moving: false,
    };
    for block in &blocks {
        new.add(block);
    }
    *followed() = Some(new);
    FOLLOWS.store(true, Relaxed);
    log::debug!("device {}: {} blocks are followed", manager.gpu().ordinal(), blocks.len());
}

/// Nothing moves any more in this process.
fn end() {
    FOLLOWS.store(false, Relaxed);
    *followed() = None;
}

/// The program was given a block.
pub(super) fn allocated(manager: &Manager<Device>, address: u64) {
    let Some(block) = manager.block(address).filter(|block| block.tiers.total() >= LEAST) else { return };
    if let Some(followed) = followed().as_mut().filter(|followed| followed.is_of(manager)) {
        followed.add(&block);
    }
}

/// The program gives a block back.
pub(crate) fn freed(manager: &Manager<Device>, address: u64) {
    if !is_on() {
        return;
    }
    let Some(block) = manager.block(address).filter(|block| block.address == address) else { return };
    if let Some(followed) = followed().as_mut().filter(|followed| followed.is_of(manager)) {
        followed.remove(block.id);
    }
}

/// A kernel is about to be launched that may use these blocks. Moves what is to move for it, and for what comes next.
pub(crate) fn launched(blocks: &[TouchedBlock]) {
    if gate::kept().is_some() {
        return end();
    }
    let plan = followed().as_mut().and_then(|followed| {
        let known = |block: &&TouchedBlock| block.device == followed.device && block.bytes >= LEAST;
        let numbers: smallvec::SmallVec<[u64; 16]> =
            blocks.iter().filter(known).map(|block| block.id).collect();
        if vain::is_vain() {
            followed.placer.used(&numbers);
            return None;
        }
        followed.placer.tell_time(followed.since.elapsed().as_secs_f64());
        followed.plan(|placer, moves| placer.launch(&numbers, moves))
    });
    if let Some(plan) = plan {
        plan.carry_out(PATIENCE);
    }
}

/// A block of so many bytes has no room: others leave for it. Bytes that moved.
pub(super) fn make_room(manager: &Manager<Device>, bytes: u64) -> u64 {
    stop(manager, PATIENCE, |placer, moves| placer.make_room(bytes, moves))
}

/// The driver needs so many bytes of the device. Bytes that moved.
pub(super) fn leave(manager: &Manager<Device>, bytes: u64, patience: Duration) -> u64 {
    stop(manager, patience, |placer, moves| placer.leave(bytes, moves))
}

/// A stop for memory, from what is true now.
fn stop(
    manager: &Manager<Device>,
    patience: Duration,
    ask: impl FnOnce(&mut TierPlacer, &mut Vec<TierMove>),
) -> u64 {
    let room = manager.device_room();
    let plan = followed().as_mut().filter(|followed| followed.is_of(manager)).and_then(|followed| {
        followed.look(manager, room);
        followed.plan(ask)
    });
    plan.map_or(0, |plan| plan.carry_out(patience))
}

/// The host has waited.
pub(super) fn waited(manager: &Manager<Device>) {
    let plan = followed()
        .as_mut()
        .filter(|followed| followed.is_of(manager))
        .and_then(|followed| followed.plan(TierPlacer::quiescent));
    if let Some(plan) = plan {
        plan.carry_out(LOOK);
    }
}

impl Followed {
    fn is_of(&self, manager: &Manager<Device>) -> bool {
        self.device == manager.gpu().ordinal()
    }

    fn add(&mut self, block: &wm_memory::Block) {
        self.blocks.insert(block.id, block.address..block.address + block.tiers.total());
        self.placer.placed(block.id, block.tiers.total(), near(block));
    }

    fn remove(&mut self, id: u64) {
        self.blocks.remove(&id);
        self.placer.free(id);
    }

    /// What the policy wants to move. While another thread moves memory that is nothing; where it would lie is corrected then.
    fn plan(&mut self, ask: impl FnOnce(&mut TierPlacer, &mut Vec<TierMove>)) -> Option<MovePlan> {
        let mut moves = Vec::new();
        ask(&mut self.placer, &mut moves);
        if moves.is_empty() || self.is_moving {
            return None;
        }
        let manager = registry::existing(self.device)?;
        self.is_moving = true;
        let (numbers, ranges) = moves.into_iter().filter_map(|step| self.order(step)).unzip();
        Some(MovePlan { manager, numbers, ranges })
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

    /// Looks where all blocks lie, on a device with so much room.
    fn look(&mut self, manager: &Manager<Device>, room: u64) {
        let mut on_device = 0;
        let mut gone = Vec::new();
        for (id, range) in &self.blocks {
            match manager.block(range.start).filter(|block| block.id == *id) {
                Some(block) => {
                    on_device += near(&block);
                    self.placer.correct(*id, near(&block));
                }
                None => gone.push(*id),
            }
        }
        gone.into_iter().for_each(|id| self.remove(id));
        self.placer.set_capacity(room.saturating_add(on_device));
    }
}

/// Bytes of a block that need not come: other GPUs' memory is nearly as good as the device's, and stays.
fn near(block: &wm_memory::Block) -> u64 {
    block.tiers.device + block.tiers.peer
}

/// Moves of one stop, and the blocks that they are of.
struct MovePlan {
    manager: &'static Manager<Device>,
    numbers: Vec<u64>,
    ranges: Vec<RangeMove>,
}

impl MovePlan {
    /// Makes the moves once the GPU has nothing to do, and tells the policy what came of them. Bytes that moved.
    fn carry_out(mut self, patience: Duration) -> u64 {
        let begin = Instant::now();
        if obstacle::of_process().is_none() {
            let is_made = pace::within_share(|| self.move_all(Instant::now() + patience));
            if is_made == Some(false) && patience == PATIENCE {
                vain::note();
            }
        }
        self.log(begin.elapsed());
        self.moved(Tier::Host) + self.moved(Tier::Device)
    }

    /// Bytes that moved to a tier.
    fn moved(&self, to: Tier) -> u64 {
        self.ranges.iter().filter(|range| range.order.to == to).map(|range| range.moved.bytes).sum()
    }

    /// `took`: with the wait for the GPU.
    fn log(&self, took: Duration) {
        let [out, back] = [Tier::Host, Tier::Device].map(|to| self.moved(to) >> 20);
        log::debug!("device {}: {out} MiB out, {back} MiB in, {took:.1?}", self.manager.gpu().ordinal());
        for (number, RangeMove { order, moved, .. }) in self.numbers.iter().zip(&self.ranges) {
            let bytes = (order.range.end - order.range.start) >> 20;
            let (to, moved, stays) = (order.to, moved.bytes >> 20, moved.stays);
            log::trace!("block {number} of {bytes} MiB: {moved} MiB to {to:?}, stays: {stays:?}");
        }
    }

    /// `false`: the GPU had something to do all the while.
    fn move_all(&mut self, until: Instant) -> bool {
        let left = || until.saturating_duration_since(Instant::now());
        while self.manager.gpu().is_settled(left()).unwrap_or(false) {
            match turns::exchange(self.manager, &mut self.ranges) {
                // Other threads have submitted work meanwhile, or are about to.
                Some(WhyNot::Crowded | WhyNot::Stays(Stays::InUse)) if Instant::now() < until => {}
                _ => return true,
            }
        }
        false
    }
}

/// However it ends, the next one may begin.
impl Drop for MovePlan {
    fn drop(&mut self) {
        let room = self.manager.device_room();
        let mut followed = followed();
        let Some(followed) = followed.as_mut().filter(|followed| followed.is_of(self.manager)) else {
            return;
        };
        followed.is_moving = false;
        followed.look(self.manager, room);
        for (number, range) in self.numbers.iter().zip(&self.ranges) {
            let RangeMove { order, moved, .. } = range;
            // What it has near may lie on other GPUs.
            let is_near = || self.manager.block(order.range.start).is_some_and(|block| block.tiers.peer > 0);
            let cannot_move = match moved.stays {
                Some(stays) => matches!(stays, Stays::Pinned | Stays::Unfit),
                None => order.to == Tier::Host && moved.next >= order.range.end && is_near(),
            };
            if cannot_move && moved.bytes == 0 {
                followed.placer.keep(*number);
            }
        }
    }
}
