//! Handles with memory that is mapped at their staging place alone, and not at their addresses.
//!
//! Invariants: the ledger knows the mappings of such a handle, and no step unmaps one; it is never
//! idle, so no request gets its addresses or its memory.

use super::{HandleKey, Ledger, OccupiedHandle};

impl Ledger {
    /// The handle's memory is not mapped at its addresses from now on, or is again.
    pub(crate) fn set_unmapped(&mut self, key: HandleKey, unmapped: bool) {
        self.handles.change(key, |memory| memory.unmapped = unmapped);
    }

    /// All these handles.
    pub(crate) fn unmapped(&self) -> Vec<HandleKey> {
        self.handles.all().filter(|(_, memory)| memory.unmapped).map(|(key, _)| key).collect()
    }

    /// One of them, whether blocks lie on it or all were freed; `None`: it is mapped again, or a
    /// plan holds it.
    pub(crate) fn unmapped_handle(&self, key: HandleKey) -> Option<OccupiedHandle> {
        let memory = self.handles.get(key).filter(|memory| memory.unmapped && !memory.held)?;
        let start = memory.active.or(memory.mapped.first().copied())?;
        Some(memory.occupied_at(key, start))
    }
}
