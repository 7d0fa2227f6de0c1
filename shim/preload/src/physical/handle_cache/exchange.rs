//! A piece on the host becomes device memory: its alias stands for other memory from then on.

use smallvec::SmallVec;
use wm_driver::Tier;
use wm_memory::PieceKind;

use super::{Access, Alias, HandleCache, HeldPiece, Vmm};

/// Times that the driver is asked to undo a step.
const ATTEMPTS: u32 = 8;

impl<V: Vmm> HandleCache<V> {
    /// An alias for memory that goes back to the driver when the program gives it up.
    pub(crate) fn lend(&mut self, kind: PieceKind, handle: u64) -> u64 {
        let alias = self.made(kind, handle);
        let Some(found) = self.aliases.get_mut(&alias) else { return alias };
        // Its memory is not another alias's, wherever it is mapped.
        found.uses = 1;
        if let Some(memory) = found.memory.and_then(|number| self.memories.get_mut(&number)) {
            memory.kept = false;
        }
        alias
    }

    /// The piece of an alias that is bound.
    pub(crate) fn held(&self, alias: u64) -> Option<HeldPiece> {
        let Alias { kind, memory, uses, .. } = *self.aliases.get(&alias)?;
        let memory = self.memories.get(&memory?)?;
        let at = memory.mappings.iter().copied().filter(|at| self.mappings[at].used).collect();
        Some(HeldPiece { kind, handle: memory.handle, at, shared: memory.shared, uses })
    }

    /// Aliases that are mapped in a range.
    pub(crate) fn mapped_in(&self, address: u64, bytes: u64) -> SmallVec<[u64; 4]> {
        let views = self.overlapping(address, bytes).into_iter().map(|at| &self.mappings[&at]);
        let used = views.filter(|view| view.used);
        used.filter_map(|view| self.memories.get(&view.memory)?.holder).collect()
    }

    /// The alias stands for the memory of `handle` on the device from now on, which has its bytes.
    /// `access`: the rights at each address where it is mapped. `false`: the program has changed
    /// the piece since it was `seen`, or the driver has refused, and nothing is different.
    pub(crate) fn exchange(&mut self, alias: u64, seen: &HeldPiece, handle: u64, access: &[Access]) -> bool {
        if self.held(alias).as_ref() != Some(seen) {
            return false;
        }
        let mut places = seen.at.iter().zip(access).enumerate();
        let refused = places.find(|(_, (at, access))| !self.swap(**at, seen.kind.bytes, handle, access));
        if let Some((done, _)) = refused {
            for (at, access) in seen.at.iter().zip(access).take(done) {
                let _left = self.swap(*at, seen.kind.bytes, seen.handle, access);
            }
            return false;
        }
        self.rename(alias, handle, &seen.at, access);
        true
    }

    /// Maps other memory at an address. If the driver refuses, what was there is there again; if it
    /// refuses that too, nothing is, and an access is an error.
    fn swap(&mut self, address: u64, bytes: u64, handle: u64, access: &Access) -> bool {
        let before = self.mappings.get(&address).and_then(|view| self.memories.get(&view.memory));
        let Some(before) = before.map(|memory| memory.handle) else { return false };
        if self.vmm.unmap(address, bytes).is_err() {
            return false;
        }
        let place = |handle| {
            self.vmm.map(address, bytes, handle)?;
            self.vmm.allow(address, bytes, access).inspect_err(|_| {
                let _left = self.vmm.unmap(address, bytes);
            })
        };
        let placed = place(handle);
        if placed.is_err() {
            let _left = (0..ATTEMPTS).find(|_| place(before).is_ok());
        }
        placed.is_ok()
    }

    /// Records an exchange, and gives the memory up that the alias stood for.
    fn rename(&mut self, alias: u64, handle: u64, at: &[u64], access: &[Access]) {
        let Some(found) = self.aliases.get(&alias).copied() else { return };
        let kind = found.kind.on(Tier::Device);
        let number = self.remember(kind, handle);
        for (at, access) in at.iter().zip(access) {
            if let Some(view) = self.mappings.get_mut(at) {
                (view.memory, view.access) = (number, access.clone());
            }
        }
        let before = found.memory.and_then(|before| {
            let memory = self.memories.get_mut(&before)?;
            memory.mappings.retain(|other| !at.contains(other));
            Some((before, memory.kept))
        });
        if let Some(memory) = self.memories.get_mut(&number) {
            memory.mappings.extend(at.iter().copied());
            memory.kept = before.is_some_and(|(_, kept)| kept);
        }
        self.hand_over(number, alias);
        self.aliases.insert(alias, Alias { kind, memory: Some(number), ..found });
        if let Some((before, _)) = before {
            let _left = self.release_uncounted(before);
        }
    }
}
