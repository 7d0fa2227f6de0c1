//! The policies that do not know the future.

use std::collections::{BTreeMap, HashMap};

use wm_memory::tiers::{TierMove, TierPlacer, TierSettings};

use super::board::Board;

/// A policy decides which blocks lie on the device. A step's calls come in this order: `allocate`
/// of a new block; `launch`, then `touch` of each of its blocks; `free` while the block is live;
/// `wait` where nothing is in flight.
pub(super) trait Placement {
    fn allocate(&mut self, board: &mut Board, now: usize, block: u32);
    fn launch(&mut self, _board: &mut Board, _blocks: &[u32]) {}
    fn touch(&mut self, _board: &mut Board, _now: usize, _block: u32) {}
    fn free(&mut self, _board: &mut Board, _block: u32) {}
    fn wait(&mut self, _board: &mut Board) {}
}

/// New blocks on the device while there is room; nothing moves.
pub(super) struct FirstFit;

impl Placement for FirstFit {
    fn allocate(&mut self, board: &mut Board, _now: usize, block: u32) {
        board.place(block, board.bytes(block));
    }
}

/// At each launch its blocks come to the device, and the least recently used blocks are evicted:
/// unified memory without its faults. Of a block that is larger than the device, the rest stays on
/// the host.
#[derive(Default)]
pub(super) struct LeastRecentlyUsed {
    clock: u64,
    stamps: HashMap<u32, u64>,
    order: BTreeMap<u64, u32>,
}

impl LeastRecentlyUsed {
    fn used(&mut self, block: u32) {
        self.clock += 1;
        if let Some(old) = self.stamps.insert(block, self.clock) {
            self.order.remove(&old);
        }
        self.order.insert(self.clock, block);
    }

    /// All others leave, the longest unused first, until there are so many bytes of room.
    fn make_room(&self, board: &mut Board, bytes: u64, block: u32) {
        for other in self.order.values().filter(|other| **other != block) {
            let room = board.room();
            if room >= bytes {
                return;
            }
            board.leave(*other, bytes - room);
        }
    }
}

impl Placement for LeastRecentlyUsed {
    fn allocate(&mut self, board: &mut Board, _now: usize, block: u32) {
        let bytes = board.bytes(block);
        self.make_room(board, bytes, block);
        board.place(block, bytes);
        self.used(block);
    }

    fn touch(&mut self, board: &mut Board, _now: usize, block: u32) {
        let missing = board.elsewhere(block);
        self.make_room(board, missing, block);
        board.come(block, missing);
        self.used(block);
    }

    fn free(&mut self, _board: &mut Board, block: u32) {
        if let Some(stamp) = self.stamps.remove(&block) {
            self.order.remove(&stamp);
        }
    }
}

/// The policy that the library is to use.
pub(super) struct Ours {
    placer: TierPlacer,
    moves: Vec<TierMove>,
}

impl Ours {
    pub(super) fn new(capacity: u64) -> Self {
        let placer = TierPlacer::new(TierSettings::of_capacity(capacity));
        Self { placer, moves: Vec::new() }
    }

    /// Makes the moves; `true` if there were any.
    fn carry_out(&mut self, board: &mut Board) -> bool {
        let any = !self.moves.is_empty();
        for step in self.moves.drain(..) {
            let (moved, bytes) = match step {
                TierMove::Leave { block, bytes } => (board.leave(block as u32, bytes), bytes),
                TierMove::Come { block, bytes } => (board.come(block as u32, bytes), bytes),
            };
            assert!(moved == bytes, "{step:?} is impossible");
        }
        any
    }

    /// The same, at a stop that is made for it.
    fn stop(&mut self, board: &mut Board) {
        if self.carry_out(board) {
            board.stopped();
        }
    }
}

impl Placement for Ours {
    fn allocate(&mut self, board: &mut Board, _now: usize, block: u32) {
        let on_device = self.placer.allocate(block.into(), board.bytes(block), &mut self.moves);
        self.stop(board);
        let placed = board.place(block, on_device);
        assert!(placed == on_device, "{on_device} bytes of a new block, and room for {placed}");
    }

    fn launch(&mut self, board: &mut Board, blocks: &[u32]) {
        self.placer.launch(blocks.iter().map(|block| [u64::from(*block)]), &mut self.moves);
        self.stop(board);
    }

    fn free(&mut self, _board: &mut Board, block: u32) {
        self.placer.free(block.into());
    }

    fn wait(&mut self, board: &mut Board) {
        self.placer.quiescent(&mut self.moves);
        self.carry_out(board);
    }
}
