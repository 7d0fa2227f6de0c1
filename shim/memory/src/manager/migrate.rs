//! Moves: a handle's worth of live memory to another tier, at the same addresses.
//!
//! The spare is made or taken, mapped in a range of its own, where memory of the host stays mapped
//! for the next time, and filled by a copy; then it takes the old memory's place wherever that is
//! mapped. Where nothing is mapped the spare of the device is filled in its place. A failure before
//! that changes nothing, one during it is undone. Nothing is waited for but the copy, and that for
//! a bounded time.
//!
//! Only where nothing is in flight: see [`Manager::move_handle`] for the duties of the caller.

use std::ops::Range;
use std::time::{Duration, Instant};

use wm_driver::{Event, Gpu, Tier, gpu};

use super::Manager;
use super::remap::{Mappable, MappedAccess, Remap, RemapFailure};
use super::shared_pieces::own_access;
use crate::books::staying::Stay;
use crate::policy::attempt::Room;
use crate::state::swap::{StrandedSwap, Swap, TakenFingerprints};
use crate::vocabulary::moves::{MoveOrder, MoveRefusal, Moved, SpareSource};
use crate::vocabulary::plan::{BuildFailure, Built, Undo};

/// How long to look whether work is over. Not at once: an event that is recorded in idle streams
/// takes some microseconds to be passed.
pub(super) const LOOK: Duration = Duration::from_micros(500);

/// How long the copies of a batch may take. It waits for nothing, so more means that the link is
/// slower than it was.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// How often the caller is asked whether it gives up, while a copy is waited for.
const ASKED: Duration = Duration::from_millis(1);

/// A move whose copies were started.
pub(super) struct StartedMove {
    swap: Swap,
    built: Built,
    copies: Vec<Event>,
    /// An error if one could not be started.
    outcome: Result<(), MoveRefusal>,
    /// Nothing is mapped at the handle's addresses any more.
    is_unmapped: bool,
}

impl StartedMove {
    /// Bytes of the handle.
    pub(super) fn bytes(&self) -> u64 {
        self.swap.handle.bytes()
    }

    /// Bytes of it that are copied.
    pub(super) fn copied(&self) -> u64 {
        self.swap.copied()
    }

    /// Is it to end before anything else, since nothing is mapped at its addresses?
    pub(super) fn is_unmapped(&self) -> bool {
        self.is_unmapped
    }
}

impl<G: Gpu> Manager<G> {
    /// Moves the handle's worth of memory that an address is in, with every block on it, to another
    /// tier. Their addresses stay.
    ///
    /// The caller sees to it that from before this call until it returns no thread of the process
    /// submits work to the GPU, looks for [`Manager::borders`] or uses borders that it found, and
    /// that no other process uses the memory. Whether earlier work is over is looked at here: if it
    /// is not, the memory stays. Frees and allocations of other threads do no harm, as long as they
    /// submit nothing.
    ///
    /// # Errors
    /// Why the memory stays.
    pub fn move_handle(&self, address: u64, to: Tier) -> Result<Moved, MoveRefusal> {
        let order = MoveOrder::new(address..address + 1, to);
        let moved = self.settle().and_then(|()| {
            let mut taken = TakenFingerprints::new();
            if to != Tier::Device {
                let whole = std::iter::once((order.range.clone(), u64::MAX));
                self.take_fingerprints(whole, &mut taken, || false);
            }
            let started = self.begin_move(address, &order, 0, &taken, SpareSource::Made)?;
            self.finish_move(started, Instant::now() + PATIENCE)
        });
        self.note_kept_copies(|| false, || false);
        self.count_move(to, moved);
        moved
    }

    pub(super) fn count_move(&self, to: Tier, moved: Result<Moved, MoveRefusal>) {
        self.lock().moves.count(to, moved);
        self.show();
        self.waiters.notify();
    }

    /// The block at an address stays on the device until it is freed: moves out leave the handles
    /// that it lies on. It may be elsewhere now. `false`: no block begins there.
    pub fn pin_to_device(&self, address: u64) -> bool {
        let mut state = self.lock();
        let block = state.program.directory().look_up(address).filter(|block| block.address == address);
        let Some(block) = block else { return false };
        state.staying.insert(address, block.id, Stay::OnDevice);
        true
    }

    /// Graphs name these ranges: what lies there stays where it is.
    pub fn keep_in_graphs(&self, ranges: &[Range<u64>]) {
        let mut state = self.lock();
        ranges.iter().for_each(|range| state.in_graphs.insert(range));
    }

    /// No graph names these ranges any more.
    pub fn release_from_graphs(&self, ranges: &[Range<u64>]) {
        let mut state = self.lock();
        ranges.iter().for_each(|range| state.in_graphs.remove(range));
    }

    /// From now on new handles have the few sizes that moves exchange, at the cost of some memory
    /// near the end of the device. Those that were made before keep theirs.
    pub fn expect_moves(&self) {
        self.lock().expects_moves = true;
    }

    /// Idle memory of other tiers stays from now on, however long it is not used: what came from
    /// there is to go there again.
    pub fn hold_elsewhere(&self) {
        self.lock().pool.keep_elsewhere.hold();
    }

    /// It goes again once it was not used for long.
    pub fn let_go_elsewhere(&self) {
        self.lock().pool.keep_elsewhere.let_go();
    }

    /// Bytes of the device that blocks could have: idle memory of blocks, and memory that may still
    /// be made within the user's limit. Pieces count against the limit, and their idle memory is
    /// not for blocks. 0 where the driver does not tell.
    pub fn device_room(&self) -> u64 {
        let Ok(room) = self.room() else { return 0 };
        let most = room.device.min(self.limit(Tier::Device));
        let state = self.lock();
        let idle = state.holdings.ledger.handles().idle_bytes().device;
        idle.saturating_add(most.saturating_sub(state.held().device))
    }

    /// Are so many bytes more than the driver would have if all memory of blocks and pieces were
    /// off the device? `false` where the driver does not tell.
    pub fn cannot_give(&self, bytes: u64) -> bool {
        let all = |free: u64| free.saturating_add(self.lock().held().device);
        bytes > 0 && self.gpu.memory_info().is_ok_and(|(free, _)| bytes > all(free))
    }

    /// The blocks in a range stay where they are until they are freed: something was told where
    /// they lie, or uses them in a way that is not seen here. Returns once no move is under way.
    pub fn keep_in_place(&self, range: &Range<u64>) {
        self.wait_until(|state| !state.under_way.is_moving()).keep_in_place(range);
    }

    /// Waits until no other thread is changing where memory is mapped, for that time at most.
    pub fn await_changes(&self, limit: Duration) {
        drop(self.wait_within(Instant::now() + limit, |state| state.under_way.is_none()));
    }

    /// Is all earlier work over?
    pub(super) fn settle(&self) -> Result<(), MoveRefusal> {
        self.is_fixed()?;
        self.see_over(|gpu| gpu.is_settled(LOOK))
    }

    /// An error where others rely on where memory is.
    pub(super) fn is_fixed(&self) -> Result<(), MoveRefusal> {
        if self.lock().fixed { Err(MoveRefusal::Fixed) } else { Ok(()) }
    }

    /// Looks whether earlier work is over, and notes it.
    pub(super) fn see_over(&self, is_over: impl FnOnce(&G) -> gpu::Result<bool>) -> Result<(), MoveRefusal> {
        let mark = self.lock().timeline.everything();
        if !is_over(&self.gpu)? {
            return Err(MoveRefusal::InUse);
        }
        let told = self.lock().reached(&mark);
        self.recycle(told);
        Ok(())
    }

    /// Takes the spare of a handle, and starts to fill it. `own` moves of the caller's are under
    /// way.
    pub(super) fn begin_move(
        &self,
        address: u64,
        order: &MoveOrder,
        own: usize,
        taken: &TakenFingerprints,
        source: SpareSource,
    ) -> Result<StartedMove, MoveRefusal> {
        let draft = |room| self.lock().draft_swap(address, order, own, room, &self.rules, taken);
        let swap = match (draft(None), source) {
            // The room that is left is asked for where no idle handle fits: that takes longer than
            // all else here.
            (Err(MoveRefusal::Full), SpareSource::Made) => self.draft_on(order.to, |room| draft(Some(room))),
            (Err(MoveRefusal::Full), SpareSource::Kept) => draft(Some(Room::default())),
            (drafted, _) => drafted,
        }?;
        self.start(swap)
    }

    /// Makes the spare of a draft, or maps it, and starts to fill it.
    pub(super) fn start(&self, mut swap: Swap) -> Result<StartedMove, MoveRefusal> {
        // A mapping that stays there does no harm: it is unmapped when memory is next given back.
        // Reservations go then, behind mappings that were left in them before.
        let is_unmapping = |step: &Undo| matches!(step, Undo::Unmap { .. });
        let (unmaps, rest): (Vec<_>, Vec<_>) = swap.unmap_first.drain(..).partition(is_unmapping);
        let mut later = self.dismantle(&unmaps);
        later.extend(rest);
        if !later.is_empty() {
            self.lock().quarantine(later);
        }
        match self.map_spare(&swap) {
            Ok(built) => {
                if self.rules.settings.verify_moves {
                    self.verify(&mut swap, built.base);
                }
                let (copies, outcome) = self.start_copies(&swap, built.base);
                Ok(StartedMove { swap, built, copies, outcome, is_unmapped: false })
            }
            Err(failure) => {
                self.lock().roll_back_swap(&swap, failure.not_undone);
                Err(if failure.tier.is_some() { MoveRefusal::Full } else { failure.code.into() })
            }
        }
    }

    /// Maps the spare where it is filled, if it is not mapped already.
    fn map_spare(&self, swap: &Swap) -> Result<Built, BuildFailure> {
        if swap.fills_in_place() {
            return self.build_at(swap.part(), &swap.handle.places(), own_access(&swap.handle));
        }
        swap.staged().map_or_else(|| self.build(&swap.scratch()), Ok)
    }

    pub(super) fn finish_move(&self, started: StartedMove, until: Instant) -> Result<Moved, MoveRefusal> {
        if !self.is_copied(&started, until) {
            self.strand([started]);
            return Err(MoveRefusal::Slow);
        }
        self.conclude(started)
    }

    /// Waits for the copies of a move. `false`: they are not over.
    pub(super) fn is_copied(&self, started: &StartedMove, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        started.copies.is_empty() || self.gpu.wait_any(&[&started.copies], left).is_some()
    }

    /// The same for as long as a copy may take; not once the caller `gives_up`.
    pub(super) fn is_copied_unless(&self, started: &StartedMove, gives_up: impl Fn() -> bool) -> bool {
        for _ in 0..PATIENCE.as_micros() / ASKED.as_micros() {
            if self.is_copied(started, Instant::now() + ASKED) {
                return true;
            }
            if gives_up() {
                return false;
            }
        }
        false
    }

    /// Gives moves up whose copies are under way.
    pub(super) fn strand(&self, moves: impl IntoIterator<Item = StartedMove>) {
        let stranded =
            |StartedMove { swap, built, copies, .. }| StrandedSwap { swap, copies, undo: built.undo };
        let given_up = self.lock().strand_swaps(moves.into_iter().map(stranded).collect());
        self.recycle(given_up);
    }

    /// Unmaps a handle that comes from the host, if its copies are over: the driver takes long for
    /// that, but need not wait for other copies. The move is to be concluded whatever happens.
    pub(super) fn unmap_ahead(&self, started: &mut StartedMove) {
        let StartedMove { swap, built, outcome, is_unmapped, .. } = started;
        let (handle, places) = (&swap.handle, swap.handle.places());
        let will_be_mapped = outcome.is_ok() && !built.handles.is_empty() && !swap.fills_in_place();
        let is_plain = will_be_mapped && !handle.foreign && handle.has_mapping();
        let ([place], true, false) = (&places[..], is_plain, *is_unmapped) else { return };
        // Where it fails, it is tried again when the move is concluded.
        *is_unmapped = self.unmap(*place, handle.bytes() as usize).is_ok();
    }

    /// The copies of a move are over: the spare takes the handle's place.
    pub(super) fn conclude(&self, started: StartedMove) -> Result<Moved, MoveRefusal> {
        let StartedMove { swap, built, copies, outcome, is_unmapped } = started;
        copies.into_iter().for_each(|event| self.gpu.recycle(event));
        let Some(spare) = built.handles.first().copied() else {
            return self.undo(&swap, &built, MoveRefusal::Unfit);
        };
        if let Err(refusal) = outcome {
            return self.undo(&swap, &built, refusal);
        }
        if swap.fills_in_place() {
            return Ok(self.finish(&swap, built));
        }
        let (places, bytes) = (swap.handle.places(), swap.handle.bytes());
        let full = own_access(&swap.handle);
        let access = if swap.handle.foreign { MappedAccess::Reading } else { full };
        let [old, new] = swap.mapped(spare);
        let old = old.map(|handle| Mappable { handle, access });
        let new = new.map(|handle| Mappable { handle, access: full });
        match self.remap(&Remap { places: &places, bytes, old, new, is_unmapped }) {
            Ok(()) => Ok(self.finish(&swap, built)),
            Err(RemapFailure::Undone(code)) => self.undo(&swap, &built, code.into()),
            Err(RemapFailure::Lost(code)) => {
                self.lock().fixed = true;
                self.undo(&swap, &built, MoveRefusal::Lost(code))
            }
        }
    }

    /// Starts the copies into the spare. Where one cannot be started, those before it may be under
    /// way.
    fn start_copies(&self, swap: &Swap, scratch: u64) -> (Vec<Event>, Result<(), MoveRefusal>) {
        let mut events = Vec::with_capacity(swap.parts.len());
        let way = swap.way();
        for part in &swap.parts {
            let target = scratch + (part.start - swap.handle.range.start);
            match self.gpu.copy(way, target, swap.source(part.start), (part.end - part.start) as usize) {
                Ok(event) => events.push(event),
                Err(code) => return (events, Err(code.into())),
            }
        }
        (events, Ok(()))
    }

    fn finish(&self, swap: &Swap, built: Built) -> Moved {
        let (moved, given_up) = self.lock().commit_swap(swap, built.handles[0], built.base);
        let stays_mapped = swap.stays_staged() || swap.fills_in_place();
        let is_scratch = |step: &Undo| !stays_mapped && !matches!(step, Undo::Release { .. });
        let steps: Vec<Undo> = built.undo.into_iter().filter(is_scratch).chain(given_up).collect();
        let failed = self.dismantle(&steps);
        self.lock().quarantine(failed);
        moved
    }

    fn undo(&self, swap: &Swap, built: &Built, refusal: MoveRefusal) -> Result<Moved, MoveRefusal> {
        let failed = self.dismantle(&built.undo);
        self.lock().roll_back_swap(swap, failed);
        Err(refusal)
    }
}
