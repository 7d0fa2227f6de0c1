//! Moves: a handle's worth of live memory to another tier, at the same addresses.
//!
//! The spare is made or taken, mapped in a range of its own and filled by a copy; then it takes the old memory's place wherever that is mapped. A failure before that changes nothing,
//! one during it is undone. Nothing is waited for but the copy, and that for a bounded time.
//!
//! Only where nothing is in flight: see [`Manager::move_handle`] for what the caller has to see to.

use std::time::Duration;

use wm_driver::{Event, Gpu, Tier};

use super::Manager;
use super::remap::{Remap, RemapFailure};
use crate::state::trade::{StrandedTrade, Trade};
use crate::vocabulary::moves::{Moved, Stays};
use crate::vocabulary::plan::{Built, Undo};

/// How long to look whether work is over. Not at once: an event that is recorded in idle streams takes some microseconds to be passed.
const LOOK: Duration = Duration::from_micros(500);

/// How long a copy of one handle may take. It waits for nothing, so more means that the link is not what it was.
const PATIENCE: Duration = Duration::from_secs(1);

impl<G: Gpu> Manager<G> {
    /// Moves the handle's worth of memory that an address is in, with every block on it, to another tier. Their addresses stay.
    ///
    /// The caller sees to it that from before this call until it returns no thread of the process submits work to the GPU, looks
    /// for [`Manager::borders`] or uses what it found there, and that no other process uses the memory. Whether earlier work is over is looked at here: if it is not,
    /// the memory stays. Frees and allocations of other threads do no harm, as long as they submit nothing.
    ///
    /// # Errors
    /// Why the memory stays.
    pub fn move_handle(&self, address: u64, to: Tier) -> Result<Moved, Stays> {
        let moved = self.try_to_move(address, to);
        self.lock().moves.note(to, moved);
        self.waiters.notify();
        moved
    }

    /// From now on all memory stays where it is: something was told where it lies, or uses it in a way that is not seen here. Returns once no
    /// move is under way.
    pub fn keep_in_place(&self) {
        self.wait_until(|state| !state.under_way.is_moving()).fixed = true;
    }

    fn try_to_move(&self, address: u64, to: Tier) -> Result<Moved, Stays> {
        if self.lock().fixed {
            return Err(Stays::Fixed);
        }
        let mark = self.lock().timeline.everything();
        if !self.gpu.is_settled(LOOK)? {
            return Err(Stays::InUse);
        }
        let told = self.lock().reached(&mark);
        self.recycle(told);
        let room = self.room()?;
        let trade = self.lock().draft_trade(address, to, room, &self.rules)?;
        let built = match self.build(&trade.scratch()) {
            Ok(built) => built,
            Err(failure) => {
                self.lock().roll_back_trade(&trade, failure.not_undone);
                return Err(if failure.tier.is_some() { Stays::Full } else { failure.code.into() });
            }
        };
        self.fill_and_swap(&trade, built)
    }

    fn fill_and_swap(&self, trade: &Trade, built: Built) -> Result<Moved, Stays> {
        let (events, started) = self.start_copies(trade, built.base);
        if !events.is_empty() && self.gpu.wait_any(&[&events], PATIENCE).is_none() {
            let StrandedTrade { at_once, given_up } = self.lock().strand_trade(trade, events, built.undo);
            let failed = self.dismantle(&at_once);
            self.lock().quarantine(failed);
            self.recycle(given_up);
            return Err(Stays::Slow);
        }
        events.into_iter().for_each(|event| self.gpu.recycle(event));
        let Some(spare) = built.handles.first().copied() else {
            return self.undo(trade, &built, Stays::Unfit);
        };
        if let Err(stays) = started {
            return self.undo(trade, &built, stays);
        }
        let (places, bytes) = (trade.places(), trade.handle.bytes());
        match self.remap(&Remap { places: &places, bytes, old: trade.handle.raw, new: spare }) {
            Ok(()) => Ok(self.finish(trade, built)),
            Err(RemapFailure::Undone(code)) => self.undo(trade, &built, code.into()),
            Err(RemapFailure::Lost(code)) => {
                self.lock().fixed = true;
                self.undo(trade, &built, Stays::Lost(code))
            }
        }
    }

    /// Starts the copies into the spare. Where one cannot be started, those before it may be under way.
    fn start_copies(&self, trade: &Trade, scratch: u64) -> (Vec<Event>, Result<(), Stays>) {
        let mut events = Vec::with_capacity(trade.parts.len());
        for part in &trade.parts {
            let target = scratch + (part.start - trade.handle.range.start);
            match self.gpu.copy(target, part.start, (part.end - part.start) as usize) {
                Ok(event) => events.push(event),
                Err(code) => return (events, Err(code.into())),
            }
        }
        (events, Ok(()))
    }

    fn finish(&self, trade: &Trade, built: Built) -> Moved {
        let spare = built.handles[0];
        let moved = self.lock().commit_trade(trade, spare);
        let scratch: Vec<Undo> =
            built.undo.into_iter().filter(|step| !matches!(step, Undo::Release { .. })).collect();
        let failed = self.dismantle(&scratch);
        self.lock().quarantine(failed);
        moved
    }

    fn undo(&self, trade: &Trade, built: &Built, stays: Stays) -> Result<Moved, Stays> {
        let failed = self.dismantle(&built.undo);
        self.lock().roll_back_trade(trade, failed);
        Err(stays)
    }
}
