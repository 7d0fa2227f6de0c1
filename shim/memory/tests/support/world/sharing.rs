//! Steps of a program whose blocks share memory with other processes, and of the library that sees
//! to it.

use std::time::Duration;

use wm_driver::{Gpu, Handle, StreamId};
use wm_memory::{MoveRefusal, MovedRange, Quiet, ShareOutcome, TakenBack, Unparked};

use super::World;
use crate::support::model::GRANULARITY;

pub(super) const LONG: Duration = Duration::from_secs(60);

/// Chunks of one step.
const MOST: usize = 4;

impl World {
    /// Chunks of a block from a part on get memory of others that has the same bytes, or give
    /// theirs away.
    pub fn share(
        &mut self,
        index: usize,
        part: u8,
        donates: bool,
        fail: Option<(u64, u64)>,
    ) -> Vec<ShareOutcome> {
        let Some(index) = index.checked_rem(self.live.len()) else { return Vec::new() };
        let live = &self.live[index];
        let first = (live.address + live.bytes * u64::from(part) / 256).next_multiple_of(GRANULARITY);
        let whole = (first..).step_by(GRANULARITY as usize);
        let whole = whole.take_while(|at| at + GRANULARITY <= live.address + live.bytes);
        let chunks: Vec<u64> = whole.filter(|at| self.model().is_chunk(*at)).take(MOST).collect();
        let quiet = self.model().is_quiet();
        let outcomes =
            if donates { self.donate(&chunks, fail) } else { self.share_with_others(&chunks, fail) };
        assert!(
            quiet || !outcomes.contains(&ShareOutcome::Shared),
            "memory changes while work may be touching it"
        );
        self.see_places();
        outcomes
    }

    pub(super) fn share_with_others(
        &mut self,
        chunks: &[u64],
        fail: Option<(u64, u64)>,
    ) -> Vec<ShareOutcome> {
        let model = self.manager.gpu();
        let pairs: Vec<_> =
            chunks.iter().map(|at| (self.manager.chunk_at(*at), model.import_like(*at))).collect();
        fail.into_iter().for_each(|(k, count)| model.fail_in(k, count));
        let shared = self.manager.share_chunks(&pairs, self.quiet(), LONG);
        model.fail_no_more();
        for ((_, handle), outcome) in pairs.iter().zip(&shared.outcomes) {
            assert!(!matches!(outcome, ShareOutcome::Refused(MoveRefusal::Lost(_))), "{outcome:?}");
            if *outcome != ShareOutcome::Shared {
                model.release(*handle).expect("it is the caller's still");
            }
        }
        shared.outcomes
    }

    /// Every third export fails.
    pub(super) fn donate(&mut self, chunks: &[u64], fail: Option<(u64, u64)>) -> Vec<ShareOutcome> {
        let model = self.manager.gpu();
        fail.into_iter().for_each(|(k, count)| model.fail_in(k, count));
        let mut given = Vec::new();
        let named: Vec<_> = chunks.iter().map(|at| self.manager.chunk_at(*at)).collect();
        let shared = self.manager.donate_chunks(&named, self.quiet(), LONG, |address, handle| {
            assert!(!model.is_writable(address), "{address:#x} is given away, and may be written");
            given.push((address, handle));
            if (address / GRANULARITY).is_multiple_of(3) { Err(wm_abi::CUresult::UNKNOWN) } else { Ok(()) }
        });
        model.fail_no_more();
        for (address, outcome) in chunks.iter().zip(&shared.outcomes) {
            let given = given.iter().find(|(at, _)| at == address);
            if let (ShareOutcome::Shared, Some((_, handle))) = (outcome, given) {
                model.give_away(*handle);
            }
        }
        shared.outcomes
    }

    /// Part of a block gets memory of its own again.
    pub fn unshare(
        &mut self,
        index: usize,
        part: u8,
        fail: Option<(u64, u64)>,
    ) -> Option<Result<MovedRange, MoveRefusal>> {
        let live = &self.live[index.checked_rem(self.live.len())?];
        let range = live.address + live.bytes * u64::from(part) / 256..live.address + live.bytes;
        let quiet = self.model().is_quiet();
        fail.into_iter().for_each(|(k, count)| self.model().fail_in(k, count));
        let moved = self.manager.unshare(range.clone(), false, self.quiet(), LONG);
        self.model().fail_no_more();
        self.see_private();
        if let Ok(MovedRange { bytes, refusal, next, .. }) = moved {
            assert!(quiet || bytes == 0, "memory changes while work may be touching it");
            assert!(!matches!(refusal, Some(MoveRefusal::Lost(_))), "{refusal:?}");
            if refusal.is_none() {
                assert_eq!(self.manager.shared_in(range.clone()), [], "all of it was unshared");
                assert!(next >= range.end);
            }
        }
        Some(moved)
    }

    /// Some shared chunks of a block from a part on, which no other process uses any more, are
    /// taken back. Those that are not stay shared.
    pub fn take_back(&mut self, index: usize, part: u8, fail: Option<(u64, u64)>) -> Vec<TakenBack> {
        let Some(index) = index.checked_rem(self.live.len()) else { return Vec::new() };
        let live = &self.live[index];
        let range = live.address + live.bytes * u64::from(part) / 256..live.address + live.bytes;
        let shared = self.manager.shared_in(range);
        // One that reaches into the range begins before it.
        let most = MOST.min((self.model().room_to_take_back() / GRANULARITY) as usize);
        let chunks: Vec<u64> = shared.iter().map(|chunk| chunk.start).take(most).collect();
        let quiet = self.model().is_quiet();
        let named: Vec<_> = chunks.iter().map(|at| self.manager.chunk_at(*at)).collect();
        let handles: Vec<Handle> = chunks.iter().map(|at| self.model().memory_at(*at)).collect();
        handles.iter().for_each(|handle| self.model().take_back(*handle));
        let calls = ["copy", "create", "map", "unmap"].map(|call| self.model().calls(call));
        fail.into_iter().for_each(|(k, count)| self.model().fail_in(k, count));
        let outcomes = self.manager.take_back_chunks(&named, self.quiet(), LONG);
        self.model().fail_no_more();
        let after = ["copy", "create", "map", "unmap"].map(|call| self.model().calls(call));
        assert_eq!(calls, after, "only the access changes");
        for (handle, outcome) in handles.iter().zip(&outcomes) {
            match outcome {
                TakenBack::Private => assert!(quiet, "access changes while work may be under way"),
                TakenBack::Refused(MoveRefusal::Lost(_)) => panic!("{outcome:?}"),
                TakenBack::Refused(_) | TakenBack::NotTried => self.model().leave_to_others(*handle),
            }
        }
        self.see_private();
        outcomes
    }

    pub fn unpark(&mut self, fail: Option<(u64, u64)>) -> Unparked {
        let before = self.manager.usage().parked;
        fail.into_iter().for_each(|(k, count)| self.model().fail_in(k, count));
        let unparked = self.manager.unpark(LONG);
        self.model().fail_no_more();
        assert_eq!(unparked.bytes + unparked.left, before);
        unparked
    }

    /// As the library does before work that writes: the block has memory of its own, or nothing is
    /// written. Work in odd streams only reads the shared memory.
    pub(super) fn may_write(&mut self, index: usize, stream: StreamId) -> bool {
        let range = self.live[index].address..self.live[index].address + self.live[index].bytes;
        if self.manager.shared_in(range.clone()).is_empty() {
            return true;
        }
        if stream.0 % 2 == 1 {
            return false;
        }
        self.model().drain_all();
        let moved = self.manager.unshare(range.clone(), false, self.quiet(), LONG);
        self.see_private();
        moved.is_ok() && self.manager.shared_in(range).is_empty()
    }

    /// Memory has become private. That may exceed the device's limit: a write into memory that
    /// stays shared would end the program.
    pub(super) fn see_private(&mut self) {
        self.see_places();
        self.most_held = self.most_held.max(self.manager.held_on_device());
    }

    /// A caller that knows that the program's work is over need not query again. Copies of moves
    /// that were given up may be under way.
    pub(super) fn quiet(&self) -> Quiet {
        if self.knows_what_is_over && self.model().is_quiet() { Quiet::Seen } else { Quiet::Look }
    }

    fn see_places(&mut self) {
        let model = self.manager.gpu();
        self.live.iter_mut().for_each(|live| live.places = model.resolve(live.address, live.bytes));
    }

    /// The shared memory is known, counted, and cannot be written; all other memory can.
    pub(super) fn check_shared(&self) {
        let mut shared = self.check_shared_pieces();
        for live in &self.live {
            let range = live.address..live.address + live.bytes;
            let known = self.manager.shared_in(range.clone());
            shared += known.iter().map(|chunk| chunk.end - chunk.start).sum::<u64>();
            for at in (live.address..range.end).step_by(GRANULARITY as usize / 2) {
                let is_shared = known.iter().any(|chunk| chunk.contains(&at));
                assert_eq!(self.manager.has_shared(at), is_shared, "{at:#x}");
                assert_eq!(self.model().is_writable(at), !is_shared, "{at:#x}");
                assert_eq!(self.model().is_foreign(at), is_shared, "{at:#x}");
            }
        }
        let usage = self.manager.usage();
        assert_eq!(usage.shared, shared);
        let (held, known) = (self.model().foreign_bytes(), shared + usage.parked);
        assert!(
            held == known || held > known && usage.quarantined > 0,
            "{held} of others held, {known} known"
        );
    }
}
