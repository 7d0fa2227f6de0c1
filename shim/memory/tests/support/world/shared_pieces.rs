//! Steps of a program that makes memory itself, which other processes have too.

use wm_driver::StreamId;
use wm_memory::{MoveRefusal, ShareOutcome};

use super::World;
use super::sharing::LONG;

impl World {
    /// The whole memory of an adopted piece is other processes' with the same bytes, or becomes
    /// theirs.
    pub fn share_piece(
        &mut self,
        index: usize,
        donates: bool,
        fail: Option<(u64, u64)>,
    ) -> Option<ShareOutcome> {
        let piece = &self.pieces[index.checked_rem(self.pieces.len())?];
        if !piece.is_adopted() || !self.model().is_mapped(piece.address(), 1) {
            return None;
        }
        let (address, quiet) = (piece.address(), self.model().is_quiet());
        let outcomes =
            if donates { self.donate(&[address], fail) } else { self.share_with_others(&[address], fail) };
        let outcome = outcomes.first().copied()?;
        assert!(quiet || outcome != ShareOutcome::Shared, "memory changes while work may be touching it");
        Some(outcome)
    }

    /// It has memory of its own again, as far as there is room. Says whether it has.
    pub fn unshare_piece(&mut self, index: usize, fail: Option<(u64, u64)>) -> bool {
        let Some(index) = index.checked_rem(self.pieces.len()) else { return true };
        let range = self.pieces[index].range();
        let quiet = self.model().is_quiet();
        fail.into_iter().for_each(|(k, count)| self.model().fail_in(k, count));
        let moved = self.manager.unshare(range.clone(), false, self.quiet(), LONG);
        self.model().fail_no_more();
        self.see_private();
        let is_private = self.manager.shared_in(range).is_empty();
        if let Ok(moved) = moved {
            assert!(quiet || moved.bytes == 0, "memory changes while work may be touching it");
            assert!(!matches!(moved.refusal, Some(MoveRefusal::Lost(_))), "{moved:?}");
            assert!(moved.refusal.is_some() || is_private, "all of it was unshared");
        }
        is_private
    }

    /// As the library does before work that writes a piece. Work in odd streams only reads.
    pub(super) fn may_write_piece(&mut self, index: usize, stream: StreamId) -> bool {
        if !self.manager.has_shared(self.pieces[index].address()) {
            return true;
        }
        if stream.0 % 2 == 1 {
            return false;
        }
        self.model().drain_all();
        self.unshare_piece(index, None)
    }

    /// Bytes of pieces that other processes use too. Such memory cannot be written, and all other
    /// memory of pieces can.
    pub(super) fn check_shared_pieces(&self) -> u64 {
        let mut shared = 0;
        for piece in &self.pieces {
            let (range, model) = (piece.range(), self.manager.gpu());
            let known = self.manager.shared_in(range.clone());
            let is_shared = !known.is_empty();
            assert!(!is_shared || known == [range.clone()] && piece.is_adopted(), "{known:x?} of {range:x?}");
            assert_eq!(self.manager.has_shared(range.end - 1), is_shared);
            assert_eq!(model.is_foreign(range.start), is_shared, "{range:x?}");
            assert_eq!(model.is_writable(range.start), !is_shared, "{range:x?}");
            shared += if is_shared { range.end - range.start } else { 0 };
        }
        shared
    }
}
