//! Blocks that the CPU and the GPU use in turn, at one address.
//!
//! To become the CPU's, a block moves to the host, and the CPU gets access to all of it in one
//! call: a block of which the CPU may use a part, beside memory of the device, would crash the
//! driver's copies. On the way back that access is taken away first, by another mapping of the same
//! memory, so no copy of ours touches memory that the CPU may use. Then the block moves to the
//! device, as far as there is room.
//!
//! The caller gives the block up for as long as a change takes. So it is looked once whether
//! earlier work is over; later work of the process is other blocks'.

use std::ops::Range;
use std::time::{Duration, Instant};

use wm_abi::CUresult;
use wm_driver::{Gpu, Tier};

use super::Manager;

use super::remap::{Mappable, MappedAccess, Remap, RemapFailure};
use super::swap::{FingerprintTime, SwapEnds};
use crate::books::ledger::OccupiedHandle;
use crate::books::staying::Stay;
use crate::state::State;
use crate::sync::MutexGuard;
use crate::vocabulary::error::{AllocateError, FreeError};
use crate::vocabulary::moves::{MoveOrder, MoveRefusal, RangeMove, SpareSource};
use crate::vocabulary::order::Order;
use crate::vocabulary::request::Request;
use crate::vocabulary::unified::Processor;

/// How long a free waits for work, and for a change of another thread.
const FREE: Duration = Duration::from_secs(2);

/// The one change of a block that is under way, until it is dropped.
struct Handover<'a, G: Gpu> {
    manager: &'a Manager<G>,
    block: Range<u64>,
    id: u64,
}

/// Mappings of a live block change, until it is dropped.
struct MappingChange<'a, G: Gpu>(&'a Manager<G>);

impl<G: Gpu> Drop for Handover<'_, G> {
    fn drop(&mut self) {
        self.manager.lock().unified.end_change(self.block.start, self.id);
        self.manager.waiters.notify();
    }
}

impl<G: Gpu> Drop for MappingChange<'_, G> {
    fn drop(&mut self) {
        self.0.lock().end_mapping_change();
        self.0.waiters.notify();
    }
}

impl<G: Gpu> Handover<'_, G> {
    fn give(&self, holder: Option<Processor>) {
        self.manager.lock().unified.give(self.block.start, self.id, holder);
    }
}

impl<G: Gpu> Manager<G> {
    pub(super) fn allocate_unified(&self, bytes: usize, order: Order) -> Result<u64, AllocateError> {
        let request = self.possible(bytes, Request::unified(bytes, order, self.rules.granularity))?;
        let address = self.miss(request)?;
        self.lock().note_unified(address);
        Ok(address)
    }

    /// Makes the unified block that a range lies in the CPU's or the GPU's, at the same addresses.
    /// Waits at most `limit` for earlier work, and for other threads; its own copies take as long
    /// as they take. Returns at once if the block is that processor's already.
    ///
    /// The caller sees to it that neither processor uses the block from before this call until it
    /// returns, and that the other one does not use it afterwards.
    ///
    /// # Errors
    /// Why the block is not that processor's. It is the earlier one's then, with its bytes; after
    /// [`MoveRefusal::Lost`], and if the driver failed twice on the way to the GPU, it is to be
    /// handed over again first. [`MoveRefusal::NoBlock`] for a range that is not in such a block.
    pub fn hand_over(&self, range: &Range<u64>, to: Processor, limit: Duration) -> Result<(), MoveRefusal> {
        let until = Instant::now() + limit;
        let Some(handover) = self.begin_handover(range, to, until)? else { return Ok(()) };
        match to {
            Processor::Cpu => self.hand_to_cpu(&handover, until),
            Processor::Gpu => self.hand_to_gpu(&handover, until),
        }
    }

    /// `None`: the block is that processor's already.
    fn begin_handover(
        &self,
        range: &Range<u64>,
        to: Processor,
        until: Instant,
    ) -> Result<Option<Handover<'_, G>>, MoveRefusal> {
        let is_free = |state: &mut State| {
            let block = state.unified.around(range);
            block.is_none_or(|block| !state.unified.is_changing(block.start))
        };
        let mut state = self.wait_within(until, is_free).ok_or(MoveRefusal::Busy)?;
        let block = state.unified.around(range).ok_or(MoveRefusal::NoBlock)?;
        if state.unified.holder(block.start) == Some(Some(to)) {
            return Ok(None);
        }
        let id = state.unified.begin_change(block.start).ok_or(MoveRefusal::NoBlock)?;
        drop(state);
        Ok(Some(Handover { manager: self, block, id }))
    }

    fn hand_to_cpu(&self, handover: &Handover<'_, G>, until: Instant) -> Result<(), MoveRefusal> {
        self.is_fixed()?;
        if self.lock().stay_in(&handover.block) == Some(Stay::InPlace) {
            return Err(MoveRefusal::InPlace);
        }
        self.see_over(|gpu| gpu.is_settled(left(until)))?;
        let given = self.give_to_cpu(handover, until);
        if given.is_err() && self.lock().unified.holder(handover.block.start) == Some(Some(Processor::Gpu)) {
            let _stays_on_the_host = self.move_all(&handover.block, Tier::Device, until);
        }
        given
    }

    /// Another thread may move a part of it back before all of it is mapped for the CPU.
    fn give_to_cpu(&self, handover: &Handover<'_, G>, until: Instant) -> Result<(), MoveRefusal> {
        loop {
            // Memory that the CPU may have access to is on the host.
            if !self.lock().unified.may_be_on_cpu(&handover.block) {
                self.move_all(&handover.block, Tier::Host, until)?;
            }
            let (handles, _change) = self.begin_mapping_change(handover, until)?;
            if handles.iter().all(|handle| handle.tier == Tier::Host) {
                self.allow_cpu(&span(&handles))?;
                handover.give(Some(Processor::Cpu));
                return Ok(());
            }
            if left(until).is_zero() {
                return Err(MoveRefusal::Busy);
            }
        }
    }

    fn hand_to_gpu(&self, handover: &Handover<'_, G>, until: Instant) -> Result<(), MoveRefusal> {
        self.see_over(|gpu| {
            let events = gpu.record_all()?;
            let is_over = gpu.wait_any(&[&events], left(until)).is_some();
            events.into_iter().for_each(|event| gpu.recycle(event));
            Ok(is_over)
        })?;
        self.take_from_cpu(handover, until)?;
        // Memory stays on the host where others may rely on it.
        if self.is_fixed().is_err() || self.gpu.is_settled(Duration::ZERO).is_err() {
            return Ok(());
        }
        match self.move_all(&handover.block, Tier::Device, until) {
            Err(lost @ MoveRefusal::Lost(_)) => Err(lost),
            _ => Ok(()),
        }
    }

    /// The CPU has no access to the block any more. Its memory stays.
    fn take_from_cpu(&self, handover: &Handover<'_, G>, until: Instant) -> Result<(), MoveRefusal> {
        let (handles, _change) = self.begin_mapping_change(handover, until)?;
        for (index, handle) in handles.iter().enumerate() {
            let [old, new] = [MappedAccess::WithCpu, MappedAccess::Full]
                .map(|access| Some(Mappable { handle: handle.raw, access }));
            let (places, bytes) = (&[handle.range.start][..], handle.bytes());
            let refusal = match self.remap(&Remap { places, bytes, old, new, is_unmapped: false }) {
                Ok(()) => continue,
                Err(RemapFailure::Undone(code)) => code.into(),
                Err(RemapFailure::Lost(code)) => {
                    self.lock().fixed = true;
                    MoveRefusal::Lost(code)
                }
            };
            let is_undone = !matches!(refusal, MoveRefusal::Lost(_))
                && handles[..index].iter().all(|handle| self.allow_cpu(&handle.range).is_ok());
            handover.give(is_undone.then_some(Processor::Cpu));
            return Err(refusal);
        }
        handover.give(Some(Processor::Gpu));
        Ok(())
    }

    /// Moves all of a block that no work touches.
    fn move_all(&self, block: &Range<u64>, to: Tier, until: Instant) -> Result<(), MoveRefusal> {
        loop {
            let order = MoveOrder::new(block.clone(), to);
            let mut ranges = [RangeMove::new(order, u64::MAX)];
            let (fingerprints, source) = (FingerprintTime::Never, SpareSource::Made);
            let unbounded = SwapEnds { is_over: &|| false, gives_up: &|| false, fingerprints, source };
            self.swap_settled(&mut ranges, &unbounded);
            self.lock().holdings.ledger.forget_unprinted();
            match ranges[0].moved.refusal {
                None => return Ok(()),
                Some(MoveRefusal::Busy) if !left(until).is_zero() => {
                    drop(self.wait_within(until, |state| state.is_alone()));
                }
                Some(refusal) => return Err(refusal),
            }
        }
    }

    /// The handles of a block, whose mappings nothing else changes until the second value is
    /// dropped.
    fn begin_mapping_change(
        &self,
        handover: &Handover<'_, G>,
        until: Instant,
    ) -> Result<(Vec<OccupiedHandle>, MappingChange<'_, G>), MoveRefusal> {
        let mut state = self.wait_within(until, |state| state.is_alone()).ok_or(MoveRefusal::Busy)?;
        let handles = state.begin_mapping_change(&handover.block, handover.id)?;
        Ok((handles, MappingChange(self)))
    }

    /// The state, to free the block at an address in it.
    pub(super) fn lock_to_free(&self, address: u64) -> Result<MutexGuard<'_, State>, FreeError> {
        let state = self.lock();
        if !state.unified.begins_at(address) {
            return Ok(state);
        }
        drop(state);
        self.end_unified(address)
    }

    /// The block is no unified one any more. The CPU's access ends before other blocks get the
    /// memory.
    #[cold]
    fn end_unified(&self, address: u64) -> Result<MutexGuard<'_, State>, FreeError> {
        let until = Instant::now() + FREE;
        loop {
            let range = address..address + 1;
            let handover = match self.begin_handover(&range, Processor::Gpu, until) {
                Ok(Some(handover)) => handover,
                Ok(None) => {
                    let mut state = self.lock();
                    if state.unified.holder(address) == Some(Some(Processor::Gpu))
                        && !state.unified.is_changing(address)
                    {
                        state.unified.remove(address);
                        return Ok(state);
                    }
                    continue;
                }
                // It is freed meanwhile, or its context went: the books tell.
                Err(MoveRefusal::NoBlock) => return Ok(self.lock()),
                Err(_) => return Err(FreeError::OnCpu(CUresult::NOT_READY)),
            };
            self.take_from_cpu(&handover, until).map_err(|refusal| FreeError::OnCpu(code(refusal)))?;
        }
    }
}

impl State {
    /// Is nothing under way that needs mappings or changes them?
    fn is_alone(&self) -> bool {
        self.under_way.is_none() && !self.under_way.is_pinned()
    }
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

fn span(handles: &[OccupiedHandle]) -> Range<u64> {
    let ends = (handles.first(), handles.last());
    ends.0.map_or(0, |first| first.range.start)..ends.1.map_or(0, |last| last.range.end)
}

fn code(refusal: MoveRefusal) -> CUresult {
    match refusal {
        MoveRefusal::Driver(code) | MoveRefusal::Lost(code) => code,
        _ => CUresult::NOT_READY,
    }
}
