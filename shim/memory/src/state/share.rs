//! Drafts of shares: a handle that gets memory which other processes use too, or gives its own to
//! them; the way back is a swap ([`super::swap`]).
//!
//! Invariant: from the draft on the handle is barred, so that memory freed there meanwhile is given
//! to no request; the block on it is marked, so that the free cache does not keep it. A handle that
//! could not be mapped again stays barred.

use std::ops::Range;

use wm_driver::{Handle, Tier};

use crate::books::ledger::OccupiedHandle;
use crate::books::staying::Stay;
use crate::policy::attempt::Room;
use crate::state::State;
use crate::state::swap::{Swap, TakenFingerprints, without};
use crate::vocabulary::limits::DeviceLimits;
use crate::vocabulary::moves::{MoveOrder, MoveRefusal};
use crate::vocabulary::plan::Undo;
use crate::vocabulary::settings::Rules;
use crate::vocabulary::share::BlockChunk;
use crate::vocabulary::tiers::only;

impl State {
    /// Takes the handle of a chunk, if its block lives and covers it.
    pub(crate) fn draft_share(
        &mut self,
        chunk: BlockChunk,
        rules: &Rules,
    ) -> Result<OccupiedHandle, MoveRefusal> {
        let address = chunk.address;
        if self.fixed {
            return Err(MoveRefusal::Fixed);
        }
        if !self.under_way.is_none_but(0) {
            return Err(MoveRefusal::Busy);
        }
        let handle = self.holdings.ledger.occupied_handle(address).ok_or(MoveRefusal::NoBlock)?;
        if self.stay_in(&handle.range) == Some(Stay::InPlace) {
            return Err(MoveRefusal::InPlace);
        }
        // A graph may outlive the block that it was made for, and name the next one there.
        if self.in_graphs.overlaps(&handle.range) {
            return Err(MoveRefusal::InGraph);
        }
        let is_whole = handle.bytes() == rules.granularity || handle.adopted;
        let is_chunk = handle.range.start == address && is_whole;
        if !is_chunk || handle.tier != Tier::Device || handle.foreign {
            return Err(MoveRefusal::Unfit);
        }
        // Where a live block covers all of it the free cache has nothing of it.
        let block = self.program.blocks().around(address).filter(|block| {
            block.address <= address && handle.range.end <= block.address + block.tiers.total()
        });
        let block = block.ok_or(MoveRefusal::Shared)?;
        if block.id != chunk.block {
            return Err(MoveRefusal::NoBlock);
        }
        if !self.timeline.all_past(&self.holdings.ledger.touching_occupied(&handle)) {
            return Err(MoveRefusal::InUse);
        }
        self.program.mark_shared(block.address)?;
        self.holdings.ledger.bar(handle.key);
        self.holdings.ledger.hold(handle.key, true);
        self.under_way.begin_move();
        Ok(handle)
    }

    /// Other processes' memory lies wherever the handle is mapped. The handle's former memory is
    /// idle; where it is the same, it is theirs too.
    pub(crate) fn commit_share(&mut self, handle: &OccupiedHandle, raw: Handle) {
        let bytes = handle.bytes();
        let former = self.holdings.ledger.make_foreign(handle.key, raw);
        if handle.adopted {
            self.count_shared_piece(bytes, former.is_some_and(|own| own != raw));
        }
        match former {
            Some(own) if own != raw => drop(self.holdings.ledger.insert_handle(own, Tier::Device, bytes)),
            Some(_) if !handle.adopted => self.holdings.drop_held(&only(Tier::Device, bytes)),
            _ => {}
        }
        self.let_go(handle.key);
    }

    /// The handle has its former memory. `lost`: not everywhere.
    pub(crate) fn roll_back_share(&mut self, handle: &OccupiedHandle, lost: bool) {
        if lost {
            self.fixed = true;
        } else {
            self.holdings.ledger.unbar(handle.key);
        }
        self.let_go(handle.key);
    }

    /// Takes the shared handle of a chunk that no other process uses any more, if its block lives.
    pub(crate) fn draft_take_back(&mut self, chunk: BlockChunk) -> Result<OccupiedHandle, MoveRefusal> {
        if self.fixed {
            return Err(MoveRefusal::Fixed);
        }
        if !self.under_way.is_none_but(0) {
            return Err(MoveRefusal::Busy);
        }
        let handle = self.holdings.ledger.occupied_handle(chunk.address).ok_or(MoveRefusal::NoBlock)?;
        // What a piece has is in the account of pieces, which its copy gets right.
        if handle.range.start != chunk.address || !handle.foreign || handle.adopted {
            return Err(MoveRefusal::Unfit);
        }
        let block = self.program.blocks().around(chunk.address);
        if block.is_none_or(|block| block.id != chunk.block) {
            return Err(MoveRefusal::NoBlock);
        }
        self.holdings.ledger.hold(handle.key, true);
        self.under_way.begin_move();
        Ok(handle)
    }

    /// The handle can be written wherever it is mapped, and its memory is this process's alone. It
    /// counts from now on, also beyond the limit of the device: the memory is there.
    pub(crate) fn commit_take_back(&mut self, handle: &OccupiedHandle) {
        self.holdings.add_held(&only(Tier::Device, handle.bytes()));
        self.holdings.ledger.unbar(handle.key);
        self.let_go(handle.key);
    }

    /// The handle is shared still. `lost`: at some place it may be neither mapped nor readable.
    pub(crate) fn roll_back_take_back(&mut self, handle: &OccupiedHandle, lost: bool) {
        self.fixed |= lost;
        self.let_go(handle.key);
    }

    /// Chooses memory of this process's own for a shared handle, and takes it. As
    /// [`State::draft_swap`], also if a pin names the block: no pin was given the shared memory's
    /// place. `beyond_limit`: the limit of the device does not count.
    pub(crate) fn draft_unshare(
        &mut self,
        order: &MoveOrder,
        own: usize,
        room: Room,
        rules: &Rules,
        beyond_limit: bool,
    ) -> Result<Swap, MoveRefusal> {
        let none = TakenFingerprints::new();
        if !self.under_way.is_none_but(own) {
            return Err(MoveRefusal::Busy);
        }
        let handle = self.holdings.ledger.occupied_handle(order.range.start).ok_or(MoveRefusal::NoBlock)?;
        if !handle.foreign {
            return Err(MoveRefusal::Unfit);
        }
        self.may_change(&handle, order.to, true)?;
        let parts = vec![handle.range.clone()];
        let parts = if order.discards { without(parts, &order.range) } else { parts };
        let limits = self.limits;
        if beyond_limit {
            self.limits = DeviceLimits::default();
        }
        let swap = self.begin_swap(handle, order.to, parts, Some(room), rules, &none);
        self.limits = limits;
        swap
    }

    /// Shared handles that a range touches, those of freed blocks excepted.
    pub(crate) fn shared_in(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        self.holdings.ledger.foreign(range, false).map(|(range, _)| range)
    }

    /// Bytes of shared handles of live blocks, and of freed ones.
    pub(crate) fn shared_bytes(&self) -> [u64; 2] {
        let sum = |parked| {
            let all = self.holdings.ledger.foreign(&(0..u64::MAX), parked);
            all.map(|(range, _)| range.end - range.start).sum()
        };
        [sum(false), sum(true)]
    }

    /// Takes up to so many parked handles that nothing touches any more; the steps that take them
    /// apart, and their bytes.
    pub(crate) fn take_parked(&mut self, most: usize) -> (Vec<Undo>, u64) {
        let (timeline, ledger) = (&self.timeline, &self.holdings.ledger);
        let is_past = |(_, key): &(Range<u64>, _)| timeline.all_past(&ledger.touching_handle(*key));
        let parked: Vec<_> = ledger.foreign(&(0..u64::MAX), true).filter(is_past).take(most).collect();
        if parked.is_empty() {
            return (Vec::new(), 0);
        }
        let mut steps = self.earlier_steps();
        for (_, key) in &parked {
            self.holdings.ledger.take_parked(*key, &mut steps);
        }
        (steps.in_order(), parked.iter().map(|(range, _)| range.end - range.start).sum())
    }
}
