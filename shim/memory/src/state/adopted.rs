//! Pieces of the program that move as blocks do: they come into the books and leave them.
//!
//! Invariants: an adopted piece has one handle, at its own address, and one block on it; its bytes
//! count as the piece's, on the tier that its [`PiecePlace`] tells, and never as a block's.

use std::sync::Arc;

use wm_driver::{Handle, Tier};

use crate::ordering::fence::Fence;
use crate::state::State;
use crate::vocabulary::order::Pending;
use crate::vocabulary::piece::{Disowned, PieceBytes, PiecePlace};
use crate::vocabulary::plan::Undo;
use crate::vocabulary::tiers::only;

impl State {
    /// A piece may move from now on. `false`: something of the books is at its address.
    pub(crate) fn adopt(
        &mut self,
        address: u64,
        bytes: u64,
        memory: Handle,
        place: &Arc<PiecePlace>,
    ) -> bool {
        let tier = place.tier();
        if !self.holdings.ledger.adopt(memory, tier, &(address..address + bytes)) {
            return false;
        }
        let (tiers, _) = self.holdings.ledger.occupy(address, bytes);
        self.program.adopt(address, tiers);
        self.adopted.insert(address, bytes, Arc::clone(place));
        true
    }

    /// A piece moves no more. The second value are the steps that end the staging place of its
    /// memory. `None`: it is not adopted, or other processes use its memory.
    pub(crate) fn disown(&mut self, address: u64) -> Option<(Disowned, Vec<Undo>)> {
        let handle = self.holdings.ledger.occupied_handle(address).filter(|handle| !handle.foreign)?;
        self.leave_piece(handle.range.start)
    }

    /// The same in any case.
    fn leave_piece(&mut self, address: u64) -> Option<(Disowned, Vec<Undo>)> {
        let memory = self.holdings.ledger.disown(address)?;
        if memory.foreign {
            self.adopted.became_private(memory.bytes);
            self.set_pieces(self.pieces.held);
        }
        self.program.remove(address);
        self.adopted.remove(address, memory.bytes);
        let staging = memory.staging;
        let steps = staging.into_iter().flat_map(|at| Undo::of_lone_mapping(at, memory.bytes, memory.raw));
        Some((Disowned { memory: memory.raw, tier: memory.tier }, steps.collect()))
    }

    /// The fences of copies that were given up, and may still be reading a piece.
    pub(crate) fn touching_piece(&self, address: u64) -> Vec<Arc<Fence>> {
        let handle = self.holdings.ledger.occupied_handle(address);
        let pending: Pending =
            handle.map(|handle| self.holdings.ledger.touching_occupied(&handle)).unwrap_or_default();
        if self.timeline.all_past(&pending) { Vec::new() } else { self.timeline.awaited(&pending) }
    }

    /// The context goes, and the pieces stay with the program. Returns the steps that end staging
    /// places.
    pub(super) fn orphan_pieces(&mut self) -> Vec<Undo> {
        let mut steps = Vec::new();
        for address in self.adopted.addresses() {
            let Some((memory, of_it)) = self.leave_piece(address) else { continue };
            self.adopted.orphan(address, memory);
            steps.extend(of_it);
        }
        steps
    }

    /// A piece has moved: the memory that it had is a handle of ours, and counts as one.
    pub(super) fn count_moved_piece(&mut self, address: u64, bytes: u64, [from, to]: [Tier; 2]) {
        self.adopted.moved(address, bytes, to);
        let PieceBytes { mut held, physical } = self.pieces;
        self.program.fold_peaks(&held);
        self.holdings.exchange_with_piece(bytes, [from, to], &physical);
        held.subtract(&only(from, bytes));
        held.add(&only(to, bytes));
        self.pool.moved(bytes, [from, to]);
        self.set_pieces(held);
    }

    /// A piece has memory of other processes, or gave them its own. `former`: the memory that it
    /// had is a handle of ours.
    pub(super) fn count_shared_piece(&mut self, bytes: u64, former: bool) {
        let PieceBytes { held, physical } = self.pieces;
        if former {
            self.holdings.took_from_piece(bytes, &physical);
        } else {
            self.holdings.fold_peaks(&physical);
        }
        self.adopted.became_shared(bytes);
        self.set_pieces(held);
    }

    /// A shared piece has a handle of ours instead.
    pub(super) fn count_private_piece(&mut self, address: u64, bytes: u64, to: Tier) {
        let PieceBytes { mut held, physical } = self.pieces;
        self.holdings.gave_to_piece(to, bytes, &physical);
        self.adopted.became_private(bytes);
        if to != Tier::Device {
            self.program.fold_peaks(&held);
            self.adopted.moved(address, bytes, to);
            held.subtract(&only(Tier::Device, bytes));
            held.add(&only(to, bytes));
            self.pool.moved(bytes, [Tier::Device, to]);
        }
        self.set_pieces(held);
    }

    /// The pieces that may move are the adopted handles, on the tiers that their charges tell.
    pub(super) fn audit_pieces(&self) -> Result<(), String> {
        let ledger = &self.holdings.ledger;
        let adopted = ledger.handles().all().filter(|(_, memory)| memory.adopted).count();
        let is_known = |address: &u64| {
            let handle = ledger.occupied_handle(*address).filter(|handle| handle.adopted);
            handle.map(|handle| handle.tier) == self.adopted.place(*address).map(PiecePlace::tier)
        };
        let on_host =
            ledger.handles().all().filter(|(_, memory)| memory.adopted && memory.tier == Tier::Host);
        let on_host: u64 = on_host.map(|(_, memory)| memory.bytes).sum();
        if on_host != self.adopted.bytes_on_host() {
            return Err(format!("{on_host} bytes of pieces are on the host, {:?} noted", self.adopted));
        }
        let shared = ledger.handles().all().filter(|(_, memory)| memory.adopted && memory.foreign);
        let shared: u64 = shared.map(|(_, memory)| memory.bytes).sum();
        if shared != self.adopted.shared_bytes() {
            return Err(format!("{shared} bytes of pieces are shared, {:?} noted", self.adopted));
        }
        match self.adopted.addresses().iter().find(|address| !is_known(address)) {
            Some(address) => Err(format!("the piece at {address:#x} is not where its charge is")),
            None if adopted != self.adopted.len() => {
                Err(format!("{adopted} handles are adopted, and {} pieces", self.adopted.len()))
            }
            None => Ok(()),
        }
    }
}
