//! The physical memory behind a block, for its export to another process.

use wm_driver::{Gpu, Handle};

use super::Manager;
use crate::books::ledger::HandleRecord;

/// Handles that a block lies in, in the order of its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backing {
    /// The block's first byte, counted from the start of the first handle.
    pub offset: u64,
    /// Whole handles with their sizes in bytes. Neighbours of the block may lie in the first and
    /// the last.
    pub handles: Vec<(Handle, usize)>,
}

impl<G: Gpu> Manager<G> {
    /// The memory behind the live block that contains `address`. It does not change while the
    /// block lives: from now on it does not move. `None` too for a block of which a part is shared
    /// with other processes: it is to be unshared first. And for a block that is the CPU's: nothing
    /// changes then.
    pub fn backing(&self, address: u64) -> Option<Backing> {
        if self.lock().unified.may_be_on_cpu(&(address..address.saturating_add(1))) {
            return None;
        }
        let mut state = self.wait_until(|state| !state.under_way.is_moving());
        state.keep_in_place(&(address..address.saturating_add(1)));
        let block = state.program.blocks().around(address)?;
        let ledger = &state.holdings.ledger;
        let extents = ledger.extents();
        let first = extents.mapping_around(block.address)?;
        let mappings = extents.mappings(first..block.address + block.tiers.total());
        let handle = |key| {
            let is_own = |memory: &&HandleRecord| !memory.foreign && !memory.adopted;
            let memory = ledger.handles().get(key).filter(is_own)?;
            Some((memory.raw, memory.bytes as usize))
        };
        let handles: Option<Vec<_>> = mappings.map(|(_, mapping)| handle(mapping.key)).collect();
        Some(Backing { offset: block.address - first, handles: handles? })
    }
}
