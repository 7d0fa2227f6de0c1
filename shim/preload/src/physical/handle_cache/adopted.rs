//! Pieces that the device's manager moves, as it does blocks.
//!
//! A piece is *adopted* from the moment at which the program has it mapped whole at one address,
//! and nowhere else, with full access for its own device. The handle that is known here is then the
//! one of that moment. Whatever uses the handle, the mapping or its rights *disowns* the piece
//! first: the manager tells the memory that lies there. Meanwhile the piece is in exchange, so that
//! other calls which concern it wait.
//!
//! Mappings that the program has given up stay until the piece moves, since most never do, and a
//! later piece finds its memory mapped there: to map memory of the host takes 0.3 ms. Before a
//! move, and before the piece is shared, they are removed ([`HandleCache::make_alone`]), for the
//! memory is the manager's then.

use smallvec::SmallVec;
use wm_abi::{CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUdevice, CUresult};
use wm_memory::Disowned;

use super::{Access, CachedHandle, HandleCache, Vmm};

/// A piece that may be adopted, or is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlacedPiece {
    pub(crate) alias: u64,
    /// Where it is mapped.
    pub(crate) at: u64,
    /// The driver's handle, as it is known here.
    pub(crate) handle: u64,
}

/// Most calls concern few pieces.
pub(crate) type PlacedPieces = SmallVec<[PlacedPiece; 4]>;

impl<V: Vmm> HandleCache<V> {
    /// The memory of an alias is made as its device's manager makes memory.
    pub(crate) fn let_move(&mut self, alias: u64) {
        if let Some(memory) = self.memory_of_mut(alias) {
            memory.movable = true;
        }
    }

    /// Pieces that lie whole in a range and may be adopted.
    pub(crate) fn adoptable(&self, address: u64, bytes: u64) -> PlacedPieces {
        let end = address.saturating_add(bytes);
        let inside = self
            .mappings
            .range(address..end)
            .filter(|(at, view)| view.used && at.saturating_add(view.bytes) <= end);
        inside.filter_map(|(at, _)| self.lone_piece(*at)).collect()
    }

    /// The piece at an address, if it may be adopted.
    fn lone_piece(&self, at: u64) -> Option<PlacedPiece> {
        let view = self.mappings.get(&at)?;
        let memory = self.memories.get(&view.memory)?;
        let (alias, handle, device) = (memory.holder?, memory.handle, memory.kind.device);
        let is_free = memory.movable && !memory.adopted && !memory.shared && !self.is_in_exchange(alias);
        let is_own = view.access == Access::from([(device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)]);
        let is_mapped_once = self.aliases.get(&alias)?.mappings == 1;
        (is_free && is_own && is_mapped_once).then_some(PlacedPiece { alias, at, handle })
    }

    /// The manager moves a piece from now on.
    pub(crate) fn adopted(&mut self, piece: &PlacedPiece) {
        let Some(memory) = self.memory_of_mut(piece.alias) else { return };
        memory.adopted = true;
        if memory.mappings.len() > 1 {
            self.with_others.insert(piece.at);
        }
    }

    /// Adopted pieces that a range touches are mapped nowhere else from now on, until they are
    /// disowned.
    pub(crate) fn make_alone(&mut self, address: u64, bytes: u64) -> Result<(), CUresult> {
        let before = self.with_others.range(..address).next_back();
        let reaches =
            before.filter(|at| self.mappings.get(at).is_some_and(|view| **at + view.bytes > address));
        let inside = self.with_others.range(address..address.saturating_add(bytes));
        let pieces: Vec<u64> = reaches.into_iter().chain(inside).copied().collect();
        for at in pieces {
            let memory = self.mappings.get(&at).and_then(|view| self.memories.get(&view.memory));
            let others: SmallVec<[u64; 2]> = match memory.filter(|memory| memory.adopted) {
                Some(memory) => memory.mappings.iter().copied().filter(|other| *other != at).collect(),
                None => SmallVec::new(),
            };
            others.into_iter().try_for_each(|other| self.take_down(other))?;
            self.with_others.remove(&at);
        }
        Ok(())
    }

    /// Adopted pieces that a range touches. `granted`: those only that lack one of these rights.
    pub(crate) fn adopted_in(&self, address: u64, bytes: u64, granted: Option<&Access>) -> PlacedPieces {
        let lacks =
            |access: &Access| granted.is_none_or(|granted| granted.iter().any(|it| !access.contains(it)));
        let adopted = |at: u64| {
            let view = self.mappings.get(&at).filter(|view| view.used && lacks(&view.access))?;
            let memory = self.memories.get(&view.memory).filter(|memory| memory.adopted)?;
            Some(PlacedPiece { alias: memory.holder?, at, handle: memory.handle })
        };
        self.overlapping(address, bytes).into_iter().filter_map(adopted).collect()
    }

    /// The access that a device has to an adopted piece, as the program granted it: only its own
    /// has any.
    pub(crate) fn granted_to(&self, device: CUdevice, address: u64) -> Option<u32> {
        let (at, view) = self.mappings.range(..=address).next_back()?;
        let is_adopted = self.memories.get(&view.memory).is_some_and(|memory| memory.adopted);
        let is_inside = view.used && address - at < view.bytes;
        let granted = || view.access.iter().find(|(other, _)| *other == device).map(|(_, flags)| *flags);
        (is_adopted && is_inside).then(granted).flatten()
    }

    /// Where an alias is mapped, if its piece is adopted.
    pub(crate) fn adopted_at(&self, alias: u64) -> Option<u64> {
        let memory = self.memories.get(&self.aliases.get(&alias)?.memory?)?;
        let at =
            memory.mappings.iter().copied().find(|at| self.mappings.get(at).is_some_and(|view| view.used));
        at.filter(|_| memory.adopted)
    }

    /// The alias stands for the memory that the manager has left at its address.
    pub(super) fn disowned(&mut self, alias: u64, left: Option<Disowned>) {
        if let Some(at) = self.adopted_at(alias) {
            self.with_others.remove(&at);
        }
        let Some(memory) = self.memory_of_mut(alias) else { return };
        memory.adopted = false;
        let Some(Disowned { memory: handle, tier }) = left else { return };
        memory.handle = handle.0;
        memory.kind = memory.kind.on(tier);
        let kind = memory.kind;
        if let Some(found) = self.aliases.get_mut(&alias) {
            found.kind = kind;
        }
    }

    fn memory_of_mut(&mut self, alias: u64) -> Option<&mut CachedHandle> {
        let number = self.aliases.get(&alias)?.memory?;
        self.memories.get_mut(&number)
    }
}
