//! Sharing: chunks of live blocks in memory that other processes use too, mapped for reading only,
//! and the way back to memory of their own.
//!
//! A chunk is one handle of the driver's granularity, wholly under one block, or the one handle of
//! an adopted piece, of any size. Nothing is copied on
//! the way there: the caller has compared the bytes. On the way back a chunk is a handle that moves
//! (`migrate.rs`), with the shared memory as the memory that it leaves.
//!
//! Only where nothing is in flight: see [`Manager::share_chunks`] for the duties of the caller.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use wm_abi::CUresult;
use wm_driver::{Gpu, Handle, Tier};

use super::Manager;
use super::migrate::{LOOK, PATIENCE, StartedMove};
use super::remap::{Mappable, MappedAccess, Remap, RemapFailure};
use super::shared_pieces::own_access;
use super::swap::WINDOW;
use crate::books::ledger::OccupiedHandle;
use crate::vocabulary::moves::{MoveOrder, MoveRefusal, MovedRange};
use crate::vocabulary::share::{BlockChunk, Quiet, ShareOutcome, SharedChunks, Unparked};

/// Parked handles that are given up under one lock of the mappings: each is unmapped, in some 15
/// us.
const BATCH: usize = 16;

/// A pin of all mappings, until it is dropped.
struct MappingPin<'a, G: Gpu>(&'a Manager<G>);

impl<G: Gpu> Drop for MappingPin<'_, G> {
    fn drop(&mut self) {
        self.0.lock().under_way.unpin();
        self.0.waiters.notify();
    }
}

impl<G: Gpu> Manager<G> {
    /// Gives chunks of live blocks the memory of foreign handles, mapped for reading only wherever
    /// their own was mapped. Each chunk is one handle of the device, of the driver's granularity,
    /// wholly under one block, or an adopted piece. The caller has seen that the bytes are equal;
    /// its own memory is idle device memory afterwards. A foreign handle is the manager's from then
    /// on; that of a chunk that stays is the caller's still.
    ///
    /// The foreign memory must not be any that this process holds itself, under any name: that
    /// would be given to other blocks, for writing. Memory that was this process's own is given
    /// away by [`Manager::donate_chunks`].
    ///
    /// The caller sees to it that from before it compares until this returns no thread of the
    /// process submits work to the GPU, and that no other process uses the blocks. Frees and
    /// allocations of other threads do no harm. No chunk is begun once `limit` is over.
    pub fn share_chunks(
        &self,
        chunks: &[(BlockChunk, Handle)],
        quiet: Quiet,
        limit: Duration,
    ) -> SharedChunks {
        self.share_each(chunks, quiet, limit, |(chunk, foreign)| {
            let handle = self.draft_share(*chunk)?;
            if handle.raw == *foreign {
                return self.end_share(&handle, Err(RemapFailure::Undone(CUresult::INVALID_VALUE)), *foreign);
            }
            let remapped = self.map_for_reading(&handle, *foreign);
            self.end_share(&handle, remapped, *foreign)
        })
    }

    /// Gives the memory of chunks away, for others to share: it is mapped for reading only, then
    /// `export` is told its first address and the handle to pass on. The handle stays the
    /// manager's. Where `export` fails nothing has changed. For the rest as
    /// [`Manager::share_chunks`].
    pub fn donate_chunks(
        &self,
        chunks: &[BlockChunk],
        quiet: Quiet,
        limit: Duration,
        mut export: impl FnMut(u64, Handle) -> Result<(), CUresult>,
    ) -> SharedChunks {
        self.share_each(chunks, quiet, limit, |chunk| {
            let handle = self.draft_share(*chunk)?;
            let mut remapped = self.map_for_reading(&handle, handle.raw);
            if remapped.is_ok()
                && let Err(code) = export(chunk.address, handle.raw)
            {
                remapped = Err(self
                    .map_for_writing(&handle)
                    .map_or_else(RemapFailure::Lost, |()| RemapFailure::Undone(code)));
            }
            self.end_share(&handle, remapped, handle.raw)
        })
    }

    fn share_each<C>(
        &self,
        chunks: &[C],
        quiet: Quiet,
        limit: Duration,
        mut share: impl FnMut(&C) -> Result<(), MoveRefusal>,
    ) -> SharedChunks {
        let until = Instant::now() + limit;
        let settled = self.is_fixed().and_then(|()| self.see_quiet(quiet));
        let mut outcome = |chunk: &C| match settled {
            Err(refusal) => ShareOutcome::Refused(refusal),
            Ok(()) if Instant::now() >= until => ShareOutcome::NotTried,
            Ok(()) => share(chunk).into(),
        };
        SharedChunks { outcomes: chunks.iter().map(&mut outcome).collect() }
    }

    pub(super) fn see_quiet(&self, quiet: Quiet) -> Result<(), MoveRefusal> {
        // A copy of a move that was given up may have begun after the caller looked.
        let is_known = quiet == Quiet::Seen && !self.lock().holdings.has_stranded();
        self.see_over(|gpu| if is_known { Ok(true) } else { gpu.is_settled(LOOK) })
    }

    fn draft_share(&self, chunk: BlockChunk) -> Result<OccupiedHandle, MoveRefusal> {
        self.lock().draft_share(chunk, &self.rules)
    }

    /// The chunk that begins at an address, of the block that is there now.
    pub fn chunk_at(&self, address: u64) -> BlockChunk {
        BlockChunk { address, block: self.block(address).map_or(0, |block| block.id) }
    }

    /// Calls `body`, which reads live blocks: no memory that is mapped when it begins is unmapped
    /// until it has ended, also where other threads free those blocks. Other threads that want to
    /// give memory back wait for it.
    pub fn keep_mapped<R>(&self, body: impl FnOnce() -> R) -> R {
        self.wait_until(|state| !state.under_way.is_moving()).under_way.pin();
        let _pin = MappingPin(self);
        body()
    }

    fn map_for_reading(&self, handle: &OccupiedHandle, new: Handle) -> Result<(), RemapFailure> {
        let (old, new) = (
            Mappable { handle: handle.raw, access: own_access(handle) },
            Mappable { handle: new, access: MappedAccess::Reading },
        );
        let (old, new) = (Some(old), Some(new));
        self.remap(&Remap { places: &handle.places(), bytes: handle.bytes(), old, new, is_unmapped: false })
    }

    /// The way back. Memory that is mapped for reading everywhere is told as lost where it fails:
    /// others have not got it, but here it cannot be written.
    fn map_for_writing(&self, handle: &OccupiedHandle) -> Result<(), CUresult> {
        let tries = (0..super::remap::TRIES).map(|_| self.allow_writing(handle));
        let mut failure = None;
        for tried in tries {
            match tried {
                Ok(()) => return Ok(()),
                Err(RemapFailure::Undone(code) | RemapFailure::Lost(code)) => failure = Some(code),
            }
        }
        Err(failure.unwrap_or(CUresult::UNKNOWN))
    }

    fn end_share(
        &self,
        handle: &OccupiedHandle,
        remapped: Result<(), RemapFailure>,
        foreign: Handle,
    ) -> Result<(), MoveRefusal> {
        let mut state = self.lock();
        let ended = match remapped {
            Ok(()) => {
                state.commit_share(handle, foreign);
                Ok(())
            }
            Err(RemapFailure::Undone(code)) => {
                state.roll_back_share(handle, false);
                Err(code.into())
            }
            Err(RemapFailure::Lost(code)) => {
                state.roll_back_share(handle, true);
                Err(MoveRefusal::Lost(code))
            }
        };
        state.show();
        drop(state);
        self.waiters.notify();
        ended
    }

    /// Gives every shared chunk that a range touches memory of its own again, with the bytes it
    /// has, or, where it `discards`, without those of the range. Memory of the device comes first,
    /// and then that of other tiers, as far as the user allows. The answer counts chunks; `stays`
    /// says why the last one stayed that did.
    ///
    /// As [`Manager::move_range`], with three differences: it is done also where others rely on
    /// where memory is; nothing is asked where nothing is shared; and one chunk is begun however
    /// short `limit` is.
    ///
    /// # Errors
    /// Why no chunk can have its own memory now: [`MoveRefusal::InUse`] where work is not over.
    pub fn unshare(
        &self,
        range: Range<u64>,
        discards: bool,
        quiet: Quiet,
        limit: Duration,
    ) -> Result<MovedRange, MoveRefusal> {
        let until = Instant::now() + limit;
        let mut moved = MovedRange { next: range.start, ..MovedRange::default() };
        if self.lock().shared_in(&range).next().is_none() {
            moved.next = range.end;
            return Ok(moved);
        }
        self.see_quiet(quiet)?;
        let mut started = VecDeque::new();
        let mut goes_on = true;
        loop {
            while goes_on && started.len() < WINDOW && (moved.next == range.start || Instant::now() < until) {
                let begin = self.begin_unshare(&range, moved.next, discards, started.len());
                match begin {
                    Some((_, Err(MoveRefusal::Full))) if !started.is_empty() => break,
                    Some((chunk, begun)) => {
                        moved.next = chunk.end;
                        match begun {
                            Ok(one) => started.push_back(one),
                            Err(refusal) => {
                                moved.refusal = Some(refusal);
                                goes_on = !refusal.is_general();
                                moved.next = if goes_on { chunk.end } else { chunk.start.max(range.start) };
                            }
                        }
                    }
                    None => {
                        moved.next = range.end;
                        goes_on = false;
                    }
                }
            }
            let Some(one) = started.pop_front() else { return Ok(moved) };
            match self.finish_move(one, Instant::now() + PATIENCE) {
                Ok(one) => (moved.bytes, moved.count) = (moved.bytes + one.bytes, moved.count + 1),
                Err(refusal) => {
                    moved.refusal = Some(refusal);
                    goes_on &= !refusal.is_general();
                }
            }
            self.show();
            self.waiters.notify();
        }
    }

    /// Begins with the first shared chunk from an address on: the chunk, and its outcome.
    fn begin_unshare(
        &self,
        range: &Range<u64>,
        from: u64,
        discards: bool,
        own: usize,
    ) -> Option<(Range<u64>, Result<StartedMove, MoveRefusal>)> {
        let chunk = self.lock().shared_in(&(from..range.end)).next()?;
        let others = if own == 0 { &self.rules.settings.overflow[..] } else { &[] };
        let mut begun = Err(MoveRefusal::Full);
        // The last resort is the device beyond its limit, which may have been lowered since: a
        // write into memory that stays shared would end the program.
        let last = (own == 0).then_some((Tier::Device, true));
        let within = [Tier::Device].iter().chain(others).map(|tier| (*tier, false));
        for (to, beyond_limit) in within.chain(last) {
            let part = chunk.start.max(range.start)..chunk.end.min(range.end);
            let order = MoveOrder { discards, ..MoveOrder::new(part, to) };
            let draft = |room| self.lock().draft_unshare(&order, own, room, &self.rules, beyond_limit);
            begun = self.draft_on(to, draft).and_then(|swap| self.start(swap));
            // A piece has no place on another device, and a graph's memory none but on its own.
            if !matches!(begun, Err(MoveRefusal::Full | MoveRefusal::Unfit | MoveRefusal::InGraph)) {
                break;
            }
        }
        Some((chunk, begun))
    }

    /// Gives up memory that freed blocks shared: it is unmapped, its addresses are not used again.
    /// Nothing is copied and no memory is needed. Asks how far streams have come, and waits for
    /// none: memory that work may be touching stays parked. May be called at any time, also while
    /// the program submits work.
    pub fn unpark(&self, limit: Duration) -> Unparked {
        let until = Instant::now() + limit;
        let mut unparked = Unparked::default();
        if self.lock().shared_bytes()[1] > 0 {
            let queries = self.lock().timeline.queries(None, usize::MAX);
            self.run_queries(queries);
            while Instant::now() < until {
                let bytes = self.unpark_some();
                if bytes == 0 {
                    break;
                }
                unparked.bytes += bytes;
            }
            unparked.left = self.lock().shared_bytes()[1];
        }
        unparked
    }

    fn unpark_some(&self) -> u64 {
        let mut state = self.wait_until(|state| !state.under_way.is_pinned());
        let (steps, bytes) = state.take_parked(BATCH);
        if bytes == 0 {
            return 0;
        }
        self.carry_out_undo(state, &steps);
        bytes
    }

    /// Is shared memory of freed blocks still mapped in a range?
    pub fn has_parked(&self, range: Range<u64>) -> bool {
        self.lock().holdings.ledger.foreign(&range, true).next().is_some()
    }

    /// Shared chunks of live blocks that a range touches, each whole, by address.
    pub fn shared_in(&self, range: Range<u64>) -> Vec<Range<u64>> {
        self.lock().shared_in(&range).collect()
    }

    /// Does a shared chunk of a live block lie at an address? Takes the lock for one look-up.
    pub fn has_shared(&self, address: u64) -> bool {
        self.lock().shared_in(&(address..address.saturating_add(1))).next().is_some()
    }
}
