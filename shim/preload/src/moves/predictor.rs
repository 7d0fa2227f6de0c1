//! Placement of the blocks of one device by what the program did one period ago
//! ([`wm_memory::tiers`]).
//!
//! Launches, allocations and frees of blocks of 4 MiB and more are told to the placement policy,
//! and it answers with moves, which [`super::stops`] makes. After a stop the policy is told where
//! all blocks lie.
//!
//! Invariant: nothing here makes a driver call or waits.

use std::ops::Range;
use std::time::Instant;

use rustc_hash::FxHashMap;
use wm_abi::CUdevice;
use wm_driver::{Device, Tier};
use wm_memory::tiers::{TierMove, TierPlacer, TierSettings};
use wm_memory::{Block, Manager, MoveOrder, RangeMove};

use crate::launches::TouchedBlock;

/// Bytes of the smallest block that is recorded. Smaller blocks share their physical memory with
/// others. The 2 MiB segments in which PyTorch keeps small tensors do not repeat their addresses.
pub(super) const SMALLEST: u64 = 4 << 20;

/// The record of one device. There are no other devices in a process whose memory may move.
pub(super) struct Predictor {
    device: CUdevice,
    pub(super) placer: TierPlacer,
    /// Addresses of the recorded blocks, by the manager's numbers.
    blocks: FxHashMap<u64, Range<u64>>,
    since: Instant,
}

impl Predictor {
    /// No block is recorded yet, and the device has no room.
    pub(super) fn new(device: CUdevice) -> Self {
        let placer = TierPlacer::new(TierSettings::of_capacity(0));
        Self { device, placer, blocks: FxHashMap::default(), since: Instant::now() }
    }

    pub(super) fn device(&self) -> CUdevice {
        self.device
    }

    pub(super) fn count(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn add(&mut self, block: &Block) {
        self.blocks.insert(block.id, range_of(block));
        self.placer.placed(block.id, block.tiers.total(), bytes_in_place(block));
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.blocks.remove(&id);
        self.placer.free(id);
    }

    /// A kernel is about to be launched. Adds the moves for it and for later launches; none where
    /// no stop can be made.
    #[inline]
    pub(super) fn launched(&mut self, blocks: &[TouchedBlock], can_stop: bool, moves: &mut Vec<TierMove>) {
        let (device, since) = (self.device, self.since);
        let is_recorded = |block: &&TouchedBlock| block.device == device && block.bytes >= SMALLEST;
        let ids = blocks.iter().filter(is_recorded).map(|block| block.id);
        if can_stop {
            self.placer.tell_time(|| since.elapsed().as_secs_f64());
            self.placer.launch(ids, moves);
        } else {
            self.placer.used(ids);
        }
    }

    /// A move as the manager takes it, and its block.
    pub(super) fn order(&self, step: TierMove) -> Option<(u64, RangeMove)> {
        let (block, [from, to], bytes) = match step {
            TierMove::Leave { block, bytes } => (block, [Tier::Device, Tier::Host], bytes),
            TierMove::Come { block, bytes } => (block, [Tier::Host, Tier::Device], bytes),
        };
        let range = self.blocks.get(&block)?.clone();
        let order = MoveOrder { range, to, alone: false, discards: false };
        Some((block, RangeMove::new(order, bytes).only_from(from)))
    }

    /// Tells the policy where all blocks lie, and how many bytes they and `room` take on the
    /// device.
    pub(super) fn refresh(&mut self, room: u64, find: impl Fn(u64) -> Option<Block>) {
        let mut on_device = 0;
        let mut gone = Vec::new();
        for (id, range) in &self.blocks {
            match find(range.start).filter(|block| block.id == *id) {
                Some(block) => {
                    on_device += bytes_in_place(&block);
                    self.placer.correct(*id, bytes_in_place(&block));
                }
                None => gone.push(*id),
            }
        }
        gone.into_iter().for_each(|id| self.remove(id));
        self.placer.set_capacity(room.saturating_add(on_device));
    }

    pub(super) fn serves(&self, manager: &Manager<Device>) -> bool {
        self.device == manager.gpu().ordinal()
    }
}

pub(super) fn range_of(block: &Block) -> Range<u64> {
    block.address..block.address + block.tiers.total()
}

/// Bytes of a block that need no prefetch. Bytes on a peer GPU count: they are nearly as fast as
/// the device's own, and are not moved.
fn bytes_in_place(block: &Block) -> u64 {
    block.tiers.device + block.tiers.peer
}

#[cfg(test)]
mod tests {
    //! Hazard (use after free): a move names a block that is gone, or whose address is another
    //! block's by now.
    use wm_memory::{Order, TierBytes};

    use super::*;

    const BYTES: u64 = 8 << 20;

    fn block(id: u64, device: u64) -> Block {
        let tiers = TierBytes { device, peer: 0, host: BYTES - device };
        Block { address: id * BYTES, bytes: BYTES as usize, id, order: Order::Device, tiers }
    }

    fn touched(id: u64) -> TouchedBlock {
        TouchedBlock { address: id * BYTES, bytes: BYTES, id, device: 0 }
    }

    /// Two blocks on a device with room for one; the second is on the host.
    fn full_device() -> Predictor {
        let mut predictor = Predictor::new(0);
        predictor.add(&block(1, BYTES));
        predictor.add(&block(2, 0));
        predictor
            .refresh(0, |address| Some(block(address / BYTES, if address == BYTES { BYTES } else { 0 })));
        predictor
    }

    /// Moves of launches that use the second block again and again.
    fn moves(predictor: &mut Predictor, touched: TouchedBlock, can_stop: bool) -> Vec<TierMove> {
        let mut moves = Vec::new();
        (0..1000).for_each(|_| predictor.launched(&[touched], can_stop, &mut moves));
        moves
    }

    #[test]
    fn a_block_that_is_used_comes_and_an_idle_one_leaves_for_it() {
        let mut predictor = full_device();
        let moves = moves(&mut predictor, touched(2), true);
        let expected =
            [TierMove::Leave { block: 1, bytes: BYTES }, TierMove::Come { block: 2, bytes: BYTES }];
        assert_eq!(moves, expected);
        let [leaves, comes] = expected.map(|step| predictor.order(step).expect("a live block").1);
        assert_eq!((leaves.order.range, leaves.order.to), (BYTES..2 * BYTES, Tier::Host));
        assert_eq!((comes.order.range, comes.order.to), (2 * BYTES..3 * BYTES, Tier::Device));
    }

    #[test]
    fn without_stops_launches_are_recorded_and_nothing_moves() {
        assert_eq!(moves(&mut full_device(), touched(2), false), []);
    }

    #[test]
    fn small_blocks_and_those_of_other_devices_are_not_recorded() {
        for other in
            [TouchedBlock { bytes: SMALLEST - 1, ..touched(2) }, TouchedBlock { device: 1, ..touched(2) }]
        {
            assert_eq!(moves(&mut full_device(), other, true), []);
        }
    }

    #[test]
    fn a_block_that_is_gone_is_not_moved() {
        let mut predictor = full_device();
        predictor.remove(1);
        let leave = TierMove::Leave { block: 1, bytes: BYTES };
        assert!(predictor.order(leave).is_none());
        let mut predictor = full_device();
        // Another block lies at the first one's address.
        predictor.refresh(0, |address| (address == BYTES).then(|| Block { id: 9, ..block(1, BYTES) }));
        assert!(predictor.order(leave).is_none() && predictor.count() == 0);
    }
}
