//! Memory that leaves for a place which the manager does not know, as files are: the caller has the
//! bytes, nothing is mapped at the addresses, and no memory is held.
//!
//! The caller sees to it that from before it reads the bytes until it has brought them back no
//! thread of the process submits work to the GPU, and that no request for memory is made. Frees do
//! no harm: while the caller copies, it [borrows](Manager::borrow_memory) the memory.

use std::ops::Range;

use wm_driver::{Gpu, Tier};

use super::Manager;
use super::remap::{Mappable, MappedAccess, Remap, RemapFailure};
use super::shared_pieces::own_access;
use crate::books::ledger::NO_MEMORY;
use crate::state::swap::Swap;
use crate::vocabulary::moves::{MoveRefusal, Moved};

/// A handle's worth of memory, and the parts of it in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OccupiedMemory {
    /// All of it, by address.
    pub range: Range<u64>,
    /// The parts that blocks use, in order.
    pub parts: Vec<Range<u64>>,
}

/// While it lives, memory that becomes idle stays mapped where it is, and nothing is given back.
#[must_use]
pub struct BorrowedMemory<'a, G: Gpu>(&'a Manager<G>);

impl<G: Gpu> BorrowedMemory<'_, G> {
    /// Does a block lie on the handle whose memory begins at an address, and has it memory?
    pub fn has(&self, address: u64) -> bool {
        let handle = self.0.lock().holdings.ledger.occupied_handle(address);
        handle.is_some_and(|handle| handle.range.start == address && !handle.away)
    }
}

impl<G: Gpu> Drop for BorrowedMemory<'_, G> {
    fn drop(&mut self) {
        self.0.lock().under_way.end_borrow();
    }
}

impl<G: Gpu> Manager<G> {
    /// Memory of blocks may be copied by its address, even where they are freed meanwhile. What is
    /// freed before is not there any more: see [`BorrowedMemory::has`].
    pub fn borrow_memory(&self) -> BorrowedMemory<'_, G> {
        self.lock().under_way.begin_borrow();
        BorrowedMemory(self)
    }

    /// The memory of handles that blocks in a range lie on.
    pub fn used_memory(&self, range: &Range<u64>) -> Vec<OccupiedMemory> {
        let (mut next, mut found) = (range.start, Vec::new());
        while next < range.end {
            let state = self.lock();
            let ledger = &state.holdings.ledger;
            let Some(handle) = ledger.occupied_handle(next) else {
                next = (next / self.rules.granularity + 1) * self.rules.granularity;
                continue;
            };
            next = handle.range.end;
            found.push(OccupiedMemory { parts: ledger.occupied_parts(&handle.range), range: handle.range });
        }
        found
    }

    /// Unmaps the handle's worth of memory that an address is in, everywhere. The caller has the
    /// bytes. Its memory is idle then; memory of other processes is given up.
    ///
    /// # Errors
    /// Why the memory stays.
    pub fn put_away(&self, address: u64) -> Result<Moved, MoveRefusal> {
        let draft = || self.lock().draft_away(address);
        let done = self.seen_over(draft).and_then(|swap| self.unmap_away(&swap));
        self.count_move(Tier::Host, done);
        done
    }

    fn unmap_away(&self, swap: &Swap) -> Result<Moved, MoveRefusal> {
        let (places, bytes) = (swap.handle.places(), swap.handle.bytes());
        let access = if swap.handle.foreign { MappedAccess::Reading } else { own_access(&swap.handle) };
        let old = Some(Mappable { handle: swap.handle.raw, access });
        let unmapped = self.remap(&Remap { places: &places, bytes, old, new: None, is_unmapped: false });
        let mut state = self.lock();
        match unmapped {
            Ok(()) => {
                let (moved, given_up) = state.commit_swap(swap, NO_MEMORY, 0);
                drop(state);
                let failed = self.dismantle(given_up.as_slice());
                self.lock().quarantine(failed);
                Ok(moved)
            }
            Err(RemapFailure::Undone(code)) => {
                state.roll_back_swap(swap, Vec::new());
                Err(code.into())
            }
            Err(RemapFailure::Lost(code)) => {
                state.fixed = true;
                state.roll_back_swap(swap, Vec::new());
                Err(MoveRefusal::Lost(code))
            }
        }
    }

    /// Gives the handle that an address is in memory again: of the device, or of the host where the
    /// device has no room. The caller fills it. `None`: its blocks were freed meanwhile.
    ///
    /// # Errors
    /// Why it has none; [`MoveRefusal::Full`] where there is no room at all.
    pub fn bring_back(&self, address: u64) -> Result<Option<Tier>, MoveRefusal> {
        if self.forget_freed(address) {
            return Ok(None);
        }
        let mut done = self.give_memory(address, Tier::Device);
        if matches!(done, Err(MoveRefusal::Full)) && self.rules.settings.overflow.contains(&Tier::Host) {
            done = self.give_memory(address, Tier::Host);
        }
        match done {
            // The flush of cached blocks may have freed the last one.
            Err(MoveRefusal::NoBlock) if self.forget_freed(address) => Ok(None),
            done => done.map(Some),
        }
    }

    fn give_memory(&self, address: u64, tier: Tier) -> Result<Tier, MoveRefusal> {
        let draft = |room| self.lock().draft_return(address, tier, room, &self.rules);
        let swap = self.seen_over(|| self.draft_on(tier, draft))?;
        let done = self.start(swap).and_then(|started| self.conclude(started));
        self.count_move(tier, done);
        done.map(|_| tier)
    }

    /// A draft; once more if work that is over was not seen to be.
    fn seen_over<T>(&self, draft: impl Fn() -> Result<T, MoveRefusal>) -> Result<T, MoveRefusal> {
        match draft() {
            Err(MoveRefusal::InUse) => self.settle().and_then(|()| draft()),
            drafted => drafted,
        }
    }

    fn forget_freed(&self, address: u64) -> bool {
        let Some(steps) = self.lock().forget_away(address) else { return false };
        let failed = self.dismantle(&steps);
        self.lock().quarantine(failed);
        true
    }
}
