//! Drafts of memory that a pause has left unmapped at the addresses of its blocks
//! ([`crate::books::ledger`], `unmapped`).

use crate::books::ledger::OccupiedHandle;
use crate::state::State;
use crate::vocabulary::moves::MoveRefusal;

impl State {
    /// A handle whose memory is to be mapped at its addresses; it is held meanwhile. `None`: all
    /// memory is mapped.
    ///
    /// # Errors
    /// Another thread is changing mappings.
    pub(crate) fn draft_mapping(&mut self) -> Result<Option<OccupiedHandle>, MoveRefusal> {
        let Some(handle) = self.holdings.ledger.next_unmapped() else { return Ok(None) };
        if !self.under_way.is_none_but(0) {
            return Err(MoveRefusal::Busy);
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
