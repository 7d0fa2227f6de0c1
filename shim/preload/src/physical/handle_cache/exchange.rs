//! A piece on the host becomes device memory: its alias stands for other memory from then on.
//!
//! An exchange makes many driver calls, so the cache is not locked meanwhile. It has a begin and an
//! end; between them the piece is *in exchange*, and calls of the program that name it, or reach
//! into a range where its memory is mapped, wait ([`super::shared`]). So its mappings are changed
//! by one thread.

use smallvec::SmallVec;
use wm_abi::CUresult;
use wm_driver::Tier;
use wm_memory::PieceKind;

use super::{Access, Alias, HandleCache, HeldPiece, Vmm};

/// Times that the driver is asked to undo a step.
const ATTEMPTS: u32 = 8;

/// An exchange that has begun: the memory of `handle` on the device, which has the piece's bytes,
/// takes the place of the piece's memory.
#[derive(Debug)]
pub(super) struct PieceExchange<'a> {
    pub(super) alias: u64,
    piece: &'a HeldPiece,
    handle: u64,
    /// The rights at each address where the program has the piece mapped.
    access: &'a [Access],
    /// Mappings of its memory that the program has given up.
    unused: Vec<(u64, u64)>,
}

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
        // The handle of an adopted piece may be another one by now.
        let shared = memory.shared || memory.adopted;
        Some(HeldPiece { kind, handle: memory.handle, at, shared, uses })
    }

    /// Aliases that are mapped in a range.
    pub(crate) fn mapped_in(&self, address: u64, bytes: u64) -> SmallVec<[u64; 4]> {
        let views = self.overlapping(address, bytes).into_iter().map(|at| &self.mappings[&at]);
        let used = views.filter(|view| view.used);
        used.filter_map(|view| self.memories.get(&view.memory)?.holder).collect()
    }

    pub(super) fn is_in_exchange(&self, alias: u64) -> bool {
        self.in_exchange.contains(&alias)
    }

    /// Is memory in exchange mapped in a range?
    pub(super) fn reaches_exchange(&self, address: u64, bytes: u64) -> bool {
        let is_touched = |at: u64| {
            let memory = self.mappings.get(&at).and_then(|view| self.memories.get(&view.memory));
            memory.and_then(|memory| memory.holder).is_some_and(|holder| self.is_in_exchange(holder))
        };
        !self.in_exchange.is_empty() && self.overlapping(address, bytes).into_iter().any(is_touched)
    }

    /// `None`: the program has changed the piece since it was `seen`, or it is in exchange.
    pub(super) fn begin_exchange<'a>(
        &mut self,
        alias: u64,
        seen: &'a HeldPiece,
        handle: u64,
        access: &'a [Access],
    ) -> Option<PieceExchange<'a>> {
        if self.is_in_exchange(alias) || self.held(alias).as_ref() != Some(seen) {
            return None;
        }
        let memory = self.memories.get(&self.aliases.get(&alias)?.memory?)?;
        let views = memory.mappings.iter().filter_map(|at| Some((*at, self.mappings.get(at)?)));
        let unused = views.filter(|(_, view)| !view.used).map(|(at, view)| (at, view.bytes)).collect();
        self.in_exchange.push(alias);
        Some(PieceExchange { alias, piece: seen, handle, access, unused })
    }

    /// Records that all has been exchanged; the memory that the alias stood for is to be released.
    pub(super) fn end_exchange(&mut self, exchange: &PieceExchange<'_>) {
        let PieceExchange { alias, piece, handle, access, unused } = exchange;
        let Some(found) = self.aliases.get(alias).copied() else { return };
        let kind = found.kind.on(Tier::Device);
        let number = self.remember(kind, *handle);
        for (at, access) in piece.at.iter().zip(*access) {
            if let Some(view) = self.mappings.get_mut(at) {
                (view.memory, view.access) = (number, access.clone());
            }
        }
        for (at, _) in unused {
            self.mappings.remove(at);
        }
        let before = found.memory.and_then(|before| self.memories.remove(&before));
        if let Some(memory) = self.memories.get_mut(&number) {
            memory.mappings.extend(piece.at.iter().copied());
            memory.kept = before.is_some_and(|before| before.kept);
        }
        self.hand_over(number, *alias);
        self.aliases.insert(*alias, Alias { kind, memory: Some(number), ..found });
    }

    /// The piece is in exchange no more.
    pub(super) fn leave_exchange(&mut self, alias: u64) {
        self.in_exchange.retain(|other| *other != alias);
    }
}

impl PieceExchange<'_> {
    /// Maps the memory wherever the piece is mapped. `false`: the driver has refused, and nothing
    /// is different.
    pub(super) fn carry_out(&mut self, vmm: &impl Vmm) -> bool {
        let Self { piece, handle, access, .. } = self;
        let mut places = piece.at.iter().zip(*access).enumerate();
        let refused =
            places.find(|(_, (at, access))| !swap(vmm, **at, piece, [piece.handle, *handle], access));
        if let Some((done, _)) = refused {
            for (at, access) in piece.at.iter().zip(*access).take(done) {
                let _left = swap(vmm, *at, piece, [*handle, piece.handle], access);
            }
            return false;
        }
        // A mapping that stays is known, and is removed when its addresses are needed.
        self.unused.retain(|(at, bytes)| vmm.unmap(*at, *bytes).is_ok());
        true
    }

    /// Gives the memory that the alias stood for to the driver.
    pub(super) fn release(&self, vmm: &impl Vmm) {
        let _left = vmm.release(self.piece.handle);
    }
}

/// Maps other memory at an address. If the driver refuses, what was there is there again; if it
/// refuses that too, nothing is, and an access is an error.
fn swap(vmm: &impl Vmm, address: u64, piece: &HeldPiece, [from, to]: [u64; 2], access: &Access) -> bool {
    let bytes = piece.kind.bytes;
    if vmm.unmap(address, bytes).is_err() {
        return false;
    }
    let place = |handle| -> Result<(), CUresult> {
        vmm.map(address, bytes, handle)?;
        vmm.allow(address, bytes, access).inspect_err(|_| {
            let _left = vmm.unmap(address, bytes);
        })
    };
    let placed = place(to);
    if placed.is_err() {
        let _left = (0..ATTEMPTS).find(|_| place(from).is_ok());
    }
    placed.is_ok()
}
