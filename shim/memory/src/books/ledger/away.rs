//! Handles without memory: the manager's caller has their bytes, and will fill new memory with
//! them.
//!
//! Invariants: nothing is mapped at the addresses of such a handle, although the ledger knows its
//! mappings; it is never idle, so no request gets its addresses; it has the name of no memory, and
//! counts as none.

use super::{HandleKey, Ledger};
use crate::vocabulary::plan::{Steps, Undo};

impl Ledger {
    /// The handle has no memory from now on, or has some again.
    pub(crate) fn set_away(&mut self, key: HandleKey, away: bool) {
        self.handles.change(key, |memory| memory.away = away);
    }

    /// Forgets a handle without mappings that has no memory.
    pub(crate) fn forget_bare(&mut self, key: HandleKey) {
        self.handles.remove(key);
    }

    /// The handle without memory that has an address, and no block on it.
    pub(crate) fn left_away(&self, address: u64) -> Option<HandleKey> {
        let (_, key) = self.extents.touched(address, 1).next()?;
        self.handles.get(key).filter(|memory| memory.away && memory.used == 0 && !memory.held).map(|_| key)
    }

    /// Forgets a handle without memory. Returns the steps that give up addresses where nothing else
    /// is mapped.
    pub(crate) fn take_away(&mut self, key: HandleKey) -> Vec<Undo> {
        let mut steps = Steps::default();
        self.set_away(key, false);
        self.take_handle(key, &mut steps);
        steps.unreserve
    }
}
