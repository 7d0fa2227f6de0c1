//! All that the manager knows, as one value behind one lock, and the steps that change it.
//!
//! Invariants: `live` sums the live blocks; `reserved` sums the handles held, those that plans under way will make
//! included, so that two plans cannot spend one budget twice; what a plan uses was taken out of the ledger when it was
//! drafted and comes back with its commit or its rollback.

pub(crate) mod decide;
pub(crate) mod draft;
mod idle;
pub(crate) mod joint;

use std::sync::Arc;

use wm_driver::Tier;

use crate::books::blocks::{Blocks, Piece};
use crate::books::free_cache::{Front, Part};
use crate::books::ledger::Ledger;
use crate::ordering::fence::{Fence, Marks, Numbered};
use crate::ordering::lessons::Lessons;
use crate::ordering::timeline::Timeline;
use crate::policy::growth::Growth;
use crate::policy::keep::Keep;
use crate::policy::scarcity::Scarcity;
use crate::vocabulary::error::FreeError;
use crate::vocabulary::order::{Order, Pending, Point};
use crate::vocabulary::plan::Undo;
use crate::vocabulary::request::{Freed, Request};
use crate::vocabulary::sizes::{CACHED_BELOW, Class};
use crate::vocabulary::tiers::{Gauge, Level, TierBytes, only};
use crate::vocabulary::usage::Counters;

/// Memory set aside for a request, and the fences that its stream must be ordered behind before the program may have it.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) address: u64,
    pub(crate) pending: Pending,
    /// `None`: a fence was given up meanwhile, so that the memory cannot be had.
    pub(crate) needs: Option<Vec<Arc<Fence>>>,
    pub(crate) epoch: u64,
}

/// In this order in memory: what a hit and a free look at comes first, on neighbouring cache lines.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct State {
    pub(crate) front: Front,
    pub(crate) blocks: Blocks,
    pub(crate) live: Gauge,
    /// Bytes asked for by the live blocks of streams: what a stream-ordered pool calls used.
    pub(crate) pooled: Level,
    pub(crate) counters: Counters,
    pub(crate) growth: Growth,
    pub(crate) timeline: Timeline,
    pub(crate) ledger: Ledger,
    pub(crate) reserved: Gauge,
    /// The part of `reserved` that plans under way have yet to make.
    pub(crate) planned: TierBytes,
    pub(crate) scarcity: Scarcity,
    pub(crate) keep: Keep,
    /// The program forbids that a stream waits for another one's free.
    pub(crate) forbids_dependencies: bool,
    /// What could not be taken apart.
    pub(crate) quarantine: Vec<Undo>,
    /// Plans and grants under way.
    pub(crate) in_flight: usize,
    /// Grows whenever something under way ends.
    pub(crate) generation: u64,
    /// Grows when the context goes: what was under way then must not be committed.
    pub(crate) epoch: u64,
    /// Threads that need every mapping to stay.
    pub(crate) pins: usize,
}

impl State {
    /// The path of most allocations.
    pub(crate) fn hit(&mut self, request: &Request) -> Option<u64> {
        let timeline = &self.timeline;
        let is_past = |freed| timeline.is_past((request.order, freed));
        let address = self.front.pop(request.order, request.bytes, &self.blocks, is_past)?;
        self.counters.hits += 1;
        self.give_out(address, request);
        Some(address)
    }

    /// Makes a granted or cached block the program's.
    fn give_out(&mut self, address: u64, request: &Request) {
        let Some(piece) = self.blocks.give_out(address, request.asked, request.order) else { return };
        self.live.add(&piece.tiers);
        self.pooled.add(piece.pooled());
        self.counters.allocations += 1;
        self.counters.overflows += u64::from(piece.tiers.elsewhere() > 0);
    }

    /// Takes a block back, whole, into the front cache. A very large one goes to the ledger at once, and so does one that
    /// is not all on the device: a hit must not hand slow memory out where the device may have room again. A guarded one
    /// does too: its addresses are not to come back soon. Returns the free as it was numbered; `None` for one that is past.
    pub(crate) fn free(&mut self, address: u64, freed: Freed) -> Result<Option<Numbered>, FreeError> {
        let Some(piece) = self.blocks.starting_at(address) else {
            return Err(self.why_not_freed(address));
        };
        let (bytes, tiers, pooled) = (piece.bytes(), piece.tiers, piece.pooled());
        let whole = tiers.elsewhere() == 0 && bytes < CACHED_BELOW && !piece.guarded;
        self.live.subtract(&tiers);
        self.growth.fallen_to(self.live.now.total());
        self.pooled.subtract(pooled);
        self.counters.frees += 1;
        let (order, numbered) = match freed {
            Freed::Past => (Order::Device, None),
            Freed::In { order, eager } => (order, Some(self.timeline.freed(order, bytes, eager))),
        };
        // What is past has number 0, which every order has passed.
        let number = numbered.map_or(0, |numbered| numbered.number);
        if whole {
            self.front.push(order, bytes, address, number, &mut self.blocks)
        } else {
            self.give_up(address, bytes, (order, number))
        }
        Ok(numbered)
    }

    /// Turns a block into free runs.
    fn give_up(&mut self, address: u64, bytes: u64, freed: Point) {
        let pending = if self.timeline.is_past(freed) { Pending::default() } else { Pending::at(freed) };
        self.blocks.remove(address);
        self.ledger.vacate(address, bytes, &pending);
    }

    fn why_not_freed(&self, address: u64) -> FreeError {
        match self.blocks.around(address) {
            Some(_) => FreeError::Interior,
            _ if self.owns(address) => FreeError::AlreadyFree,
            _ => FreeError::NotOurs,
        }
    }

    pub(crate) fn owns(&self, address: u64) -> bool {
        let stranded = |step: &Undo| match step {
            Undo::Unreserve { address: base, bytes } => (*base..base + bytes).contains(&address),
            _ => false,
        };
        self.ledger.extents.at(address).is_some() || self.quarantine.iter().any(stranded)
    }

    /// Moves the front cache, or a part of it, into the ledger. Says whether there was any.
    pub(crate) fn flush(&mut self, part: Part) -> bool {
        let drained = self.front.drain(part, &self.blocks);
        let any = !drained.is_empty();
        drained.into_iter().for_each(|(address, bytes, freed)| self.give_up(address, bytes, freed));
        any
    }

    /// Sets free addresses aside for a request.
    pub(crate) fn grant(&mut self, address: u64, request: &Request) -> Grant {
        let (tiers, pending) = self.ledger.occupy(address, request.bytes);
        self.set_aside(address, request, tiers, pending)
    }

    /// Notes a request's block, whose bytes are taken from the runs already.
    pub(crate) fn set_aside(
        &mut self,
        address: u64,
        request: &Request,
        tiers: TierBytes,
        pending: Pending,
    ) -> Grant {
        self.blocks.insert(Piece::new(address, tiers, request.class == Class::Guarded));
        let needs = self.timeline.needs(request.order, &pending);
        self.in_flight += 1;
        Grant { address, pending, needs, epoch: self.epoch }
    }

    /// The grant's calls succeeded. `false` if the context went meanwhile.
    pub(crate) fn confirm(&mut self, grant: &Grant, request: &Request) -> bool {
        self.end();
        let current = grant.epoch == self.epoch;
        if current {
            self.give_out(grant.address, request);
        }
        current
    }

    /// The grant's calls failed: its memory is free again, as it was, and the request is not met.
    pub(crate) fn withdraw(&mut self, grant: &Grant) -> bool {
        self.end();
        if grant.epoch == self.epoch
            && let Some(piece) = self.blocks.remove(grant.address)
        {
            let mut pending = grant.pending.clone();
            pending.blur();
            self.ledger.vacate(grant.address, piece.bytes(), &pending);
        }
        false
    }

    pub(crate) fn begin(&mut self) {
        self.in_flight += 1;
    }

    pub(crate) fn end(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.generation += 1;
    }

    /// Notes what calls of the driver taught. Returns fences that have nothing more to tell.
    #[must_use = "their events are to be recycled, outside the lock"]
    pub(crate) fn learn(&mut self, lessons: &Lessons, user: Order) -> Vec<Arc<Fence>> {
        let mut told: Vec<_> =
            lessons.recorded.iter().filter_map(|fence| self.timeline.add_fence(fence)).collect();
        if let Order::Stream(stream) = user {
            lessons.behind.iter().for_each(|fence| self.timeline.now_behind(stream, fence));
        }
        self.counters.orders += lessons.behind.len() as u64;
        let done = self.timeline.done(&lessons.past);
        told.extend(self.reached(&done));
        told
    }

    /// Notes points that are past. Returns fences that have nothing more to tell.
    #[must_use = "their events are to be recycled, outside the lock"]
    pub(crate) fn reached(&mut self, marks: &Marks) -> Vec<Arc<Fence>> {
        self.timeline.reached(marks)
    }

    /// Drops what is past from what free memory waits for, if anything has passed: its stretches join then.
    pub(crate) fn forget_past(&mut self) {
        if self.timeline.has_dropped() {
            let timeline = &self.timeline;
            self.ledger.runs.forget(|point| timeline.is_past(*point));
            self.ledger.extents.forget(|point| timeline.is_past(*point));
        }
    }

    /// Notes steps that failed. What was not released is still held.
    pub(crate) fn strand(&mut self, failed: Vec<Undo>) {
        self.counters.failed_releases += failed.len() as u64;
        self.quarantine.extend(failed);
    }

    /// Notes that memory was given back.
    pub(crate) fn released(&mut self, tier: Tier, bytes: u64) {
        self.reserved.subtract(&only(tier, bytes));
        self.counters.releases += 1;
        self.growth.released(bytes);
        self.scarcity.end();
    }

    /// Checks the sums against what they sum.
    pub(crate) fn audit_sums(&self) -> Result<(), String> {
        let mut live = TierBytes::default();
        self.blocks.live().for_each(|block| live.add(&block.tiers));
        let mut held = self.planned;
        self.ledger.memories.all().for_each(|(_, memory)| held.add(&only(memory.tier, memory.bytes)));
        for step in &self.quarantine {
            if let Undo::Release { tier, bytes, .. } = step {
                held.add(&only(*tier, *bytes));
            }
        }
        match (live == self.live.now, held == self.reserved.now) {
            (false, _) => Err(format!("{live:?} live, {:?} noted", self.live.now)),
            (_, false) => Err(format!("{held:?} held, {:?} noted", self.reserved.now)),
            _ => Ok(()),
        }
    }
}
