//! The manager's state, as one value behind one lock, and the steps that change it.
//!
//! The parts keep their own invariants; the functions here and in the files of this folder change
//! several of them together. The memory that a plan uses was taken out of the ledger when it was
//! drafted, and comes back with its commit or its rollback.

mod adopted;
mod away;
pub(crate) mod decide;
pub(crate) mod draft;
pub(crate) mod grant;
mod idle;
mod pieces;
mod range_set;
pub(crate) mod share;
mod shown;
pub(crate) mod spare;
pub(crate) mod swap;
mod under_way;
pub(crate) mod unified;
mod unmapped;

use std::sync::Arc;

use wm_driver::Tier;
use wm_schema::Counters;

use crate::books::adopted::AdoptedPieces;
use crate::books::black_box::BlackBoxPlace;
use crate::books::free_cache::FlushScope;
use crate::books::holdings::Holdings;
use crate::books::program::ProgramBlocks;
use crate::books::staying::StayingBlocks;
use crate::books::unified::UnifiedBlocks;
use crate::ordering::fence::{Fence, Marks, Numbered};
use crate::ordering::results::EventResults;
use crate::ordering::timeline::Timeline;
use crate::policy::facts::Facts;
use crate::policy::fingerprint_pace::FingerprintPace;
use crate::policy::flight::Flight;
use crate::policy::growth::Growth;
use crate::policy::kept_worth::KeptWorth;
use crate::policy::pool::HandlePool;
use crate::policy::scarcity::Scarcity;
use crate::state::range_set::RangeSet;
use crate::state::under_way::UnderWay;
use crate::vocabulary::error::FreeError;
use crate::vocabulary::limits::DeviceLimits;
use crate::vocabulary::moves::Moves;
use crate::vocabulary::order::{Order, Pending, Point};
use crate::vocabulary::piece::PieceBytes;
use crate::vocabulary::plan::Undo;
use crate::vocabulary::request::{Freed, Request};
use crate::vocabulary::tiers::TierBytes;

/// In this order in memory: the fields that a hit and a free read come first, on neighbouring cache
/// lines.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct State {
    pub(crate) program: ProgramBlocks,
    pub(crate) counters: Counters,
    pub(crate) shown: BlackBoxPlace,
    growth: Growth,
    pub(crate) timeline: Timeline,
    pub(crate) holdings: Holdings,
    scarcity: Scarcity,
    pub(crate) pool: HandlePool,
    pieces: PieceBytes,
    /// The program forbids that a stream waits for another one's free.
    pub(crate) forbids_dependencies: bool,
    pub(crate) under_way: UnderWay,
    /// Others rely on where memory is: nothing moves any more.
    pub(crate) fixed: bool,
    pub(crate) moves: Moves,
    pub(crate) flight: Flight,
    pub(crate) fingerprint_pace: FingerprintPace,
    pub(crate) kept_worth: KeptWorth,
    /// New handles are of the few sizes that moves exchange.
    pub(crate) expects_moves: bool,
    pub(crate) staying: StayingBlocks,
    /// Ranges that graphs name: what lies there stays there.
    pub(crate) in_graphs: RangeSet,
    pub(crate) unified: UnifiedBlocks,
    /// Pieces that may move.
    pub(crate) adopted: AdoptedPieces,
    pub(crate) limits: DeviceLimits,
    /// Bytes of pieces that have no memory now, and count as the host's.
    away_pieces: u64,
}

impl State {
    /// The path of most allocations.
    pub(crate) fn hit(&mut self, request: &Request) -> Option<u64> {
        let timeline = &self.timeline;
        let is_past = |freed| timeline.is_past((request.order, freed));
        let peaks = self.program.live().peaks();
        let address = self.program.hit(request, is_past, &mut self.counters)?;
        self.shown.given(&self.program.live(), &self.counters);
        if self.program.live().peaks() != peaks {
            self.show();
        }
        Some(address)
    }

    /// Takes a block back: whole into the free cache, or into the ledger. Returns the free as it
    /// was numbered; `None` for one that is past.
    pub(crate) fn free(&mut self, address: u64, freed: Freed) -> Result<Option<Numbered>, FreeError> {
        let Some(returned) = self.program.take_back(address) else {
            return Err(self.why_not_freed(address));
        };
        self.growth.fallen_to(self.program.live().now.total());
        self.counters.frees += 1;
        self.shown.taken(&self.program.live(), &self.counters);
        let (order, numbered) = match freed {
            Freed::Past => (Order::Device, None),
            Freed::In { order, eager } => (order, Some(self.timeline.freed(order, returned.bytes, eager))),
        };
        // A free that is past has number 0, which every order has passed.
        let number = numbered.map_or(0, |numbered| numbered.number);
        if returned.cacheable {
            self.program.cache(order, returned.bytes, address, number);
        } else {
            self.give_up(address, returned.bytes, (order, number));
        }
        Ok(numbered)
    }

    /// Turns a block into free runs.
    fn give_up(&mut self, address: u64, bytes: u64, freed: Point) {
        let pending = if self.timeline.is_past(freed) { Pending::default() } else { Pending::at(freed) };
        self.program.remove(address);
        self.holdings.ledger.vacate(address, bytes, &pending);
    }

    fn why_not_freed(&self, address: u64) -> FreeError {
        match self.program.blocks().around(address) {
            Some(_) if self.holdings.ledger.has_adopted(address) => FreeError::NotOurs,
            Some(_) => FreeError::Interior,
            _ if self.holdings.owns(address) => FreeError::AlreadyFree,
            _ => FreeError::NotOurs,
        }
    }

    /// Moves the free cache, or a part of it, into the ledger. Says whether there was any.
    pub(crate) fn flush(&mut self, scope: FlushScope) -> bool {
        let drained = self.program.drain(scope);
        let any = !drained.is_empty();
        drained.into_iter().for_each(|(address, bytes, freed)| self.give_up(address, bytes, freed));
        any
    }

    /// The facts that a decision reads.
    pub(crate) fn facts(&self) -> Facts<'_> {
        let (ledger, timeline) = (&self.holdings.ledger, &self.timeline);
        let (held, device_limit) = (self.held(), self.limits.in_force());
        Facts { ledger, timeline, held, device_limit, expects_moves: self.expects_moves }
    }

    /// Changes the limit. What was found out about the device's room is void.
    pub(crate) fn set_device_limit(&mut self, bytes: u64) {
        (self.limits.device, self.limits.is_changed) = (bytes, true);
        self.scarcity.end();
        self.shown.limited(bytes);
    }

    /// Bytes of blocks' handles and of pieces, those included that plans under way will make.
    pub(crate) fn held(&self) -> TierBytes {
        let mut held = self.holdings.held();
        [Tier::Device, Tier::Host]
            .into_iter()
            .for_each(|tier| *held.bytes_mut(tier) += self.pool.bytes(tier));
        held.device = held.device.saturating_sub(self.adopted.shared_bytes());
        held
    }

    /// Notes the events' states that calls of the driver have told. Returns the fences that are not
    /// needed any more.
    #[must_use = "their events are to be recycled, outside the lock"]
    pub(crate) fn note_results(&mut self, results: &EventResults, user: Order) -> Vec<Arc<Fence>> {
        let mut told: Vec<_> =
            results.recorded.iter().filter_map(|fence| self.timeline.add_fence(fence)).collect();
        if let Order::Stream(stream) = user {
            results.behind.iter().for_each(|fence| self.timeline.now_behind(stream, fence));
        }
        self.counters.orders += results.behind.len() as u64;
        let done = self.timeline.done(&results.past);
        told.extend(self.reached(&done));
        told
    }

    /// Notes points that are past. Returns fences that have nothing more to tell.
    #[must_use = "their events are to be recycled, outside the lock"]
    pub(crate) fn reached(&mut self, marks: &Marks) -> Vec<Arc<Fence>> {
        self.timeline.reached(marks)
    }

    /// Drops past points from free memory, if any point has passed: segments without a difference
    /// merge then.
    pub(crate) fn forget_past(&mut self) {
        if self.timeline.has_dropped() {
            let timeline = &self.timeline;
            self.holdings.ledger.forget_past(|point| timeline.is_past(*point));
        }
    }

    /// Notes steps that failed. Memory that was not released is still held.
    pub(crate) fn quarantine(&mut self, failed: Vec<Undo>) {
        self.counters.failed_releases += failed.len() as u64;
        self.holdings.quarantine(failed);
    }

    /// Strands steps of a plan that was never committed: the memory that it made and could not
    /// release counts as reserved.
    pub(crate) fn quarantine_uncommitted(&mut self, failed: Vec<Undo>) {
        self.holdings.hold(&failed);
        self.quarantine(failed);
    }

    /// Notes that memory was given back.
    pub(crate) fn released(&mut self, tier: Tier, bytes: u64) {
        self.holdings.released(tier, bytes);
        self.counters.releases += 1;
        self.growth.released(bytes);
        self.scarcity.end();
    }

    /// Checks the parts against their invariants. Slow.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let pieces: Vec<(u64, u64)> =
            self.program.blocks().all().map(|piece| (piece.address, piece.bytes())).collect();
        self.holdings.audit(&pieces)?;
        self.audit_unified()?;
        self.audit_pieces()?;
        self.program.audit()
    }
}
