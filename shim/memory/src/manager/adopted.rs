//! Pieces of the program that move as blocks do: physical memory that it made itself, at an address
//! that it reserved.
//!
//! A piece that is *adopted* is a block in the directory with one handle of its own. A move gives
//! it other memory there. Before the program, or a call on its behalf, uses the memory by its
//! handle, unmaps it or changes its access, the piece is *disowned*: the memory that lies there
//! then is the piece's again, and no longer known here.

use std::sync::Arc;
use std::time::Duration;

use wm_driver::{Event, Gpu, Handle, Tier};

use super::Manager;
use super::pieces::Charge;
use crate::ordering::fence::{Fence, Query};
use crate::ordering::results::EventResults;
use crate::vocabulary::piece::Disowned;

/// How long one wait for copies takes that were given up, and how many there are at most: the end
/// of copies is not told where the context has failed, and they are over then.
const WAIT: Duration = Duration::from_millis(500);
const WAITS: usize = 20;

impl<G: Gpu> Manager<G> {
    /// The piece may move from now on, as blocks do. Its memory is mapped whole at an address and
    /// nowhere else, this GPU alone may read and write it there, and it is made as [`Gpu::create`]
    /// makes memory of its tier. The program does not use its handle until [`Manager::disown`].
    /// `false`: it stays where it is, and nothing has changed.
    pub fn adopt(&self, piece: &Charge<'_, G>, address: u64, memory: Handle) -> bool {
        let (bytes, place) = (piece.bytes(), piece.place());
        let is_whole = |size: u64| size > 0 && size.is_multiple_of(self.rules.granularity);
        let mut state = self.lock();
        let is_fit = is_whole(bytes) && is_whole(address) && !matches!(place.tier(), Tier::Peer(_));
        is_fit && !state.fixed && state.adopt(address, bytes, memory, place)
    }

    /// The piece at an address moves no more. Waits for a move of it that is under way, and makes
    /// driver calls where its memory was filled elsewhere. `None`: it is not adopted.
    pub fn disown(&self, address: u64) -> Option<Disowned> {
        for tries in 0.. {
            // Fingerprints read the memory where it is mapped, behind a pin as moves have one.
            let mut state = self.wait_until(|state| !state.under_way.is_pinned());
            if state.is_unmapped(address) && tries < WAITS {
                drop(state);
                let _mapped = self.map_unmapped();
                continue;
            }
            if let Some(orphan) = state.adopted.take_orphan(address) {
                return Some(orphan);
            }
            if !state.adopted.has(address) {
                return None;
            }
            let copies = if tries < WAITS { state.touching_piece(address) } else { Vec::new() };
            if !copies.is_empty() {
                drop(state);
                self.wait_for_copies(copies);
                continue;
            }
            let (memory, steps) = state.disown(address)?;
            if !steps.is_empty() {
                self.carry_out_undo(state, &steps);
            }
            return Some(memory);
        }
        None
    }

    /// Bytes of blocks and of adopted pieces that are on the host.
    pub fn movable_on_host(&self) -> u64 {
        let state = self.lock();
        state.program.live().now.host + state.adopted.bytes_on_host()
    }

    /// Does the program have pieces that do not take part in moves, as small ones?
    pub fn has_small_pieces(&self) -> bool {
        let state = self.lock();
        let moved = state.adopted.bytes().saturating_sub(state.adopted.shared_bytes());
        state.pool.account().held.total() > moved
    }

    /// Is the piece at an address adopted?
    pub fn has_adopted(&self, address: u64) -> bool {
        self.lock().adopted.has(address)
    }

    fn wait_for_copies(&self, fences: Vec<Arc<Fence>>) {
        let events: Vec<&[Event]> = fences.iter().map(|fence| &fence.events[..]).collect();
        let done = self.gpu.wait_any(&events, WAIT);
        let past = done.and_then(|index| fences.get(index).cloned()).into_iter().collect();
        let results = EventResults { past, ..EventResults::default() };
        self.commit_results(results, fences.into_iter().map(Query::Ask).collect());
    }
}
