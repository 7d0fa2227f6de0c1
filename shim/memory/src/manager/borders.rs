//! Where memory of one tier meets memory of another, for copies that must not touch both in one
//! call.

use std::ops::Range;

use wm_driver::{Gpu, Tier};

use super::Manager;

impl<G: Gpu> Manager<G> {
    /// Addresses in a range, its first byte excepted, from which on another tier backs it. The
    /// range is one block's; behind its extent nothing is looked at.
    pub fn borders(&self, range: Range<u64>) -> Vec<u64> {
        let state = self.lock();
        let pieces =
            state.holdings.ledger.extents().touched(range.start, range.end.saturating_sub(range.start));
        let tier = |key| state.holdings.ledger.handles().get(key).map(|memory| memory.tier);
        let mut before: Option<Option<Tier>> = None;
        let mut borders = Vec::new();
        for (piece, key) in pieces {
            let tier = tier(key);
            if before.replace(tier).is_some_and(|before| before != tier) {
                borders.push(piece.start);
            }
        }
        borders
    }
}
