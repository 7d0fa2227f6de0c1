//! Handles that are given out: the program's own by an address, and the driver's to receivers of
//! the memory.

use wm_abi::CUresult;

use super::{HandleCache, Vmm};

impl<V: Vmm> HandleCache<V> {
    /// The program asks for the handle of the memory at an address: the alias that is mapped there,
    /// which has one reference more. `None`: no memory of ours is there.
    pub(crate) fn retain(&mut self, address: u64) -> Option<Result<u64, CUresult>> {
        let view = &self.mappings[self.overlapping(address, 1).first()?];
        let memory = self.memories.get(&view.memory).filter(|_| view.used);
        let Some(alias) = memory.and_then(|memory| memory.holder) else {
            // The program has unmapped it.
            return Some(Err(CUresult::INVALID_VALUE));
        };
        self.aliases.get_mut(&alias)?.references += 1;
        Some(Ok(alias))
    }

    /// The driver's handle that an alias stands for, which is bound now.
    pub(crate) fn bound(&mut self, alias: u64) -> Option<u64> {
        let found = *self.aliases.get(&alias).filter(|found| found.references > 0)?;
        let idle = found.memory.or_else(|| self.oldest(found.kind));
        let number = idle.or_else(|| self.make_idle(found.kind).ok())?;
        self.bind(alias, number);
        self.handle(alias)
    }

    /// The same for a use that may keep the memory alive: it is not kept later.
    pub(crate) fn share(&mut self, alias: u64) -> Option<u64> {
        let handle = self.bound(alias)?;
        let found = self.aliases.get_mut(&alias)?;
        found.uses += 1;
        self.memories.get_mut(&found.memory?)?.shared = true;
        Some(handle)
    }

    /// The same for all memory that is mapped in a range.
    pub(crate) fn share_range(&mut self, address: u64, bytes: u64) {
        for at in self.overlapping(address, bytes) {
            if let Some(memory) = self.memories.get_mut(&self.mappings[&at].memory) {
                memory.shared = true;
            }
        }
    }
}
