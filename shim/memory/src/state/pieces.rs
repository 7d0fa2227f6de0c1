//! The program's pieces beside the blocks: how much both hold together, and held at most.

use wm_driver::Tier;

use crate::state::State;
use crate::vocabulary::piece::{PieceBytes, PieceKind};
use crate::vocabulary::tiers::{TierBytes, only};
use crate::vocabulary::usage::Together;

impl State {
    /// A piece was made, or got idle memory.
    pub(crate) fn piece_made(&mut self, tier: Tier, bytes: u64) {
        self.count_pieces(self.pieces.held.plus(only(tier, bytes)));
    }

    /// A piece is gone.
    pub(crate) fn piece_gone(&mut self, tier: Tier, bytes: u64) {
        let mut held = self.pieces.held;
        held.subtract(&only(tier, bytes));
        self.count_pieces(held);
    }

    /// Reserves an idle handle for a piece, which is made with that. Says whether there is one.
    pub(crate) fn reserve_piece(&mut self, kind: PieceKind) -> bool {
        let is_reserved = self.pool.reserve(kind);
        if is_reserved {
            self.piece_made(kind.tier, kind.bytes);
        }
        is_reserved
    }

    /// Idle memory of pieces went back to the driver, perhaps.
    pub(crate) fn count_idle_pieces(&mut self) {
        self.count_pieces(self.pieces.held);
    }

    fn count_pieces(&mut self, held: TierBytes) {
        self.program.fold_peaks(&self.pieces.held);
        self.holdings.fold_peaks(&self.pieces.physical);
        self.set_pieces(held);
        self.show();
    }

    /// The pieces hold so much. Memory that other processes use too is in no account of this one.
    pub(super) fn set_pieces(&mut self, held: TierBytes) {
        let mut physical = held.plus(self.pool.idle_bytes());
        physical.device = physical.device.saturating_sub(self.adopted.shared_bytes());
        self.pieces = PieceBytes { held, physical };
    }

    /// The bytes beside which the peaks of live and of held blocks count.
    pub(crate) fn bytes_of_pieces(&self) -> [TierBytes; 2] {
        [self.pieces.held, self.pieces.physical]
    }

    /// Blocks and pieces together.
    pub(crate) fn together(&self) -> Together {
        let PieceBytes { held, physical } = self.pieces;
        let mut reserved = self.holdings.held().plus(physical);
        reserved.host = reserved.host.saturating_sub(self.away_pieces);
        Together {
            live: self.program.live().now.plus(held),
            live_peaks: self.program.peaks(&held).with_pieces,
            reserved,
            reserved_peaks: self.holdings.peaks(&physical).with_pieces,
        }
    }
}
