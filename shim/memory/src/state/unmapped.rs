//! Drafts of memory that a pause has left unmapped at the addresses of its blocks
//! ([`crate::books::ledger`], `unmapped`).

use crate::books::ledger::{HandleKey, OccupiedHandle};
use crate::state::State;
use crate::vocabulary::moves::MoveRefusal;

impl State {
    /// The handles with memory that is mapped at no address of the program.
    pub(crate) fn unmapped(&self) -> Vec<HandleKey> {
        self.holdings.ledger.unmapped()
    }

    /// One of them, to be mapped at its addresses; it is held meanwhile. `None`: another thread has
    /// it, or has mapped it.
    ///
    /// # Errors
    /// `Busy`: another thread is changing mappings. `InUse`: other memory is still mapped there,
    /// and is to be unmapped first.
    pub(crate) fn draft_mapping(&mut self, key: HandleKey) -> Result<Option<OccupiedHandle>, MoveRefusal> {
        let Some(handle) = self.holdings.ledger.unmapped_handle(key) else { return Ok(None) };
        if !self.under_way.is_none_but(0) {
            return Err(MoveRefusal::Busy);
        }
        if self.holdings.is_left_mapped_at(&handle.places()) {
            return Err(MoveRefusal::InUse);
        }
        self.holdings.ledger.hold(handle.key, true);
        self.under_way.begin_move();
        Ok(Some(handle))
    }

    /// Is the memory of the block at an address mapped at its staging place alone?
    pub(crate) fn is_unmapped(&self, address: u64) -> bool {
        let handle = self.holdings.ledger.occupied_handle(address);
        handle.is_some_and(|handle| handle.unmapped.is_some())
    }

    /// A handle's memory was mapped, or is not.
    pub(crate) fn commit_mapping(&mut self, handle: &OccupiedHandle, is_mapped: bool) {
        self.holdings.ledger.set_unmapped(handle.key, !is_mapped);
        self.let_go(handle.key);
    }
}
