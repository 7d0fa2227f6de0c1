//! Loans: bytes that a joint's block uses at addresses of its own.
//!
//! A joint maps handles that blocks of other extents lie on as well, and its block is made of what those leave free. On the
//! books these bytes stay where their handle is active: there no run covers them, they count as used, and they become runs
//! again. So a handle is active in one mapping whatever joints map it. Only this file and [`super::audit`] know that a block
//! may lie elsewhere than its bytes are booked.

use super::{HandleKey, Ledger, Stretch};
use crate::vocabulary::order::Pending;
use crate::vocabulary::tiers::TierBytes;

impl Ledger {
    /// Takes stretches out of the free runs. Returns where their bytes are and what they wait for.
    pub(crate) fn lend(&mut self, stretches: &[Stretch]) -> (TierBytes, Pending) {
        let (mut tiers, mut pending) = (TierBytes::default(), Pending::default());
        for (address, bytes) in stretches {
            let (on, until) = self.occupy(*address, *bytes);
            tiers.add(&on);
            pending.join(&until);
        }
        self.loans.insert(stretches[0].0, stretches.to_vec());
        (tiers, pending)
    }

    /// The joint is there: what was lent is its block's, which begins at `address`.
    pub(crate) fn assign_loan(&mut self, stretches: &[Stretch], address: u64) {
        if let Some(lent) = self.loans.remove(&stretches[0].0) {
            self.extents.use_changed(address, length(&lent) as i64);
            self.loans.insert(address, lent);
        }
    }

    /// The joint could not be made.
    pub(crate) fn cancel_loan(&mut self, stretches: &[Stretch], pending: &Pending) {
        let lent = self.loans.remove(&stretches[0].0).unwrap_or_default();
        lent.iter().for_each(|(address, bytes)| self.vacate(*address, *bytes, pending));
    }

    /// Gives back what the block at `address` has borrowed; says whether it had. Work may still be touching it there.
    pub(super) fn give_back(&mut self, address: u64, pending: &Pending) -> bool {
        if self.loans.is_empty() {
            return false;
        }
        let Some(lent) = self.loans.remove(&address) else { return false };
        self.extents.note_retired_uses(address, pending);
        self.extents.use_changed(address, -(length(&lent) as i64));
        lent.iter().for_each(|(address, bytes)| self.vacate(*address, *bytes, pending));
        true
    }

    /// Where `bytes` from `block_offset` on are booked in a row of handles; `None` where a handle is active nowhere.
    pub(crate) fn where_booked(
        &self,
        row: &[HandleKey],
        block_offset: u64,
        bytes: u64,
    ) -> Option<Vec<Stretch>> {
        let (mut stretches, mut begin) = (Vec::new(), 0);
        for key in row {
            let memory = self.handles.get(*key)?;
            let (from, to) = (begin.max(block_offset), (begin + memory.bytes).min(block_offset + bytes));
            if from < to {
                stretches.push((memory.active? + from - begin, to - from));
            }
            begin += memory.bytes;
        }
        (length(&stretches) == bytes).then_some(stretches)
    }
}

fn length(stretches: &[Stretch]) -> u64 {
    stretches.iter().map(|(_, bytes)| bytes).sum()
}
