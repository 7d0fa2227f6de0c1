//! Blocks that the CPU and the GPU use in turn, as one with their memory.

use std::ops::Range;

use wm_driver::Tier;

use crate::books::ledger::OccupiedHandle;
use crate::state::State;
use crate::vocabulary::moves::MoveRefusal;

impl State {
    /// The live block at an address is one of those from now on. Where the context went meanwhile
    /// there is none.
    pub(crate) fn note_unified(&mut self, address: u64) {
        if let Some(block) = self.program.blocks().around(address) {
            self.unified.insert(address, block.tiers.total(), block.id);
        }
    }

    /// The handles that a unified block lies on, while nothing else is under way: from now on a
    /// change of their mappings is. [`State::end_mapping_change`] ends it.
    pub(crate) fn begin_mapping_change(
        &mut self,
        range: &Range<u64>,
        id: u64,
    ) -> Result<Vec<OccupiedHandle>, MoveRefusal> {
        if !self.unified.has(range.start, id) {
            return Err(MoveRefusal::NoBlock);
        }
        if !self.under_way.is_none_but(0) {
            return Err(MoveRefusal::Busy);
        }
        let (mut handles, mut next) = (Vec::new(), range.start);
        while next < range.end {
            let handle = self.holdings.ledger.occupied_handle(next).ok_or(MoveRefusal::NoBlock)?;
            next = handle.range.end;
            handles.push(handle);
        }
        self.under_way.begin_move();
        Ok(handles)
    }

    pub(crate) fn end_mapping_change(&mut self) {
        self.under_way.end_move();
    }

    /// What the CPU has is memory of the host, under a live block.
    pub(super) fn audit_unified(&self) -> Result<(), String> {
        for range in self.unified.on_cpu() {
            let bytes = range.end - range.start;
            let on_host = self.holdings.ledger.bytes_on(Tier::Host, range.start, bytes);
            let is_live = self.program.blocks().starting_at(range.start).is_some();
            if !is_live || on_host != bytes {
                return Err(format!("{range:x?} is the CPU's, live: {is_live}, on the host: {on_host}"));
            }
        }
        Ok(())
    }
}
