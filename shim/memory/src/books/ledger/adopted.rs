//! Adopted handles: the memory of the program's pieces, each at an address of the program's own.
//!
//! An *adopted* handle lies wholly under one block, in an extent of its own size. The reservation
//! is the program's, so no step here ever takes it apart, and no other mapping of the handle is in
//! an extent. A swap gives it other memory, as any handle that blocks lie on.

use std::ops::Range;

use wm_driver::{Handle, Tier};

use super::{HandleKey, HandleRecord, Ledger, Segments};
use crate::vocabulary::plan::Undo;

impl Ledger {
    /// Takes in a handle that the program has mapped at a range, under free bytes. `false`: there
    /// is an extent already.
    pub(crate) fn adopt(&mut self, raw: Handle, tier: Tier, range: &Range<u64>) -> bool {
        if self.extents.meet(range) {
            return false;
        }
        let (address, bytes) = (range.start, range.end - range.start);
        let key = self.insert_handle(raw, tier, bytes);
        self.handles.change(key, |memory| memory.adopted = true);
        self.insert_extent(address, bytes, None, false, false);
        self.map(key, address);
        self.activate(key, address, Segments::default());
        true
    }

    /// Forgets an adopted handle with its block and its extent; returns its record. The memory of
    /// other processes that lies there is the caller's from then on.
    pub(crate) fn disown(&mut self, address: u64) -> Option<HandleRecord> {
        let handle = self.occupied_handle(address).filter(|handle| handle.adopted)?;
        self.barred.remove(&address);
        self.extents.unmap(address)?;
        self.extents.remove(address);
        self.handles.remove(handle.key)
    }

    /// Is the handle a piece's?
    pub(crate) fn is_adopted(&self, key: HandleKey) -> bool {
        self.handles.get(key).is_some_and(|memory| memory.adopted)
    }

    /// Is the address in an extent of the program's?
    pub(crate) fn has_adopted(&self, address: u64) -> bool {
        self.extents.touched(address, 1).next().is_some_and(|(_, key)| self.is_adopted(key))
    }

    /// Forgets all mappings of a handle that a plan has taken, except its staging place. Returns
    /// the steps that unmap it.
    pub(crate) fn detach_everywhere(&mut self, key: HandleKey) -> Vec<Undo> {
        let Some(memory) = self.handles.get(key) else { return Vec::new() };
        let (handle, bytes, places) = (memory.raw, memory.bytes, memory.mapped.clone());
        let mut unreserve = Vec::new();
        for address in &places {
            self.unmap(*address);
            unreserve.extend(self.remove_if_bare(*address));
        }
        let unmap = places.into_iter().map(|address| Undo::Unmap { address, bytes, handle });
        unmap.chain(unreserve).collect()
    }

    /// Each adopted handle lies under one block, in an extent that it fills, and is mapped there
    /// only.
    pub(super) fn audit_adopted(&self) -> Result<(), String> {
        let is_right = |memory: &HandleRecord| {
            let [address] = memory.mapped[..] else { return false };
            let range = address..address + memory.bytes;
            memory.used == memory.bytes
                && memory.active == Some(address)
                && self.extents.range(address) == Some(range)
        };
        let mut adopted = self.handles.all().filter(|(_, memory)| memory.adopted);
        match adopted.find(|(_, memory)| !is_right(memory)) {
            Some((key, memory)) => Err(format!("{key:?} is adopted, and not as it should be: {memory:x?}")),
            None => Ok(()),
        }
    }
}
