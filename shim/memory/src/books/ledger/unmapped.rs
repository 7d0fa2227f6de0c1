//! Handles whose memory is mapped at their staging place alone, and not at their addresses.
//!
//! Invariants: the ledger knows the mappings of such a handle, and no step unmaps one; it is never
//! idle, so no request gets its addresses or its memory.

use super::{HandleKey, Ledger, OccupiedHandle};

impl Ledger {
    /// The handle's memory is not mapped at its addresses from now on, or is again.
    pub(crate) fn set_unmapped(&mut self, key: HandleKey, unmapped: bool) {
        self.handles.change(key, |memory| memory.unmapped = unmapped);
    }

    /// One of these handles, whether blocks lie on it or all were freed.
    pub(crate) fn next_unmapped(&self) -> Option<OccupiedHandle> {
        let mut unmapped = self.handles.all().filter(|(_, memory)| memory.unmapped && !memory.held);
        let (key, memory) = unmapped.next()?;
        let start = memory.active.or(memory.mapped.first().copied())?;
        Some(memory.occupied_at(key, start))
    }
}
