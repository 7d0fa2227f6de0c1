//! The residency of each block: how many of its bytes are on the device. They are its first chunks;
//! the choice of chunks makes no difference to a policy, since a launch's pointer says only the
//! block.
//!
//! Invariants: the resident part is whole chunks of a block, or all of it; the sum of these parts
//! is at most the capacity, except where a caller has told another figure.

use std::collections::BTreeSet;

use super::keys::{BlockKey, BySlot};

/// The unit of a move, bytes: a handle.
pub const CHUNK: u64 = 2 << 20;

/// Smaller blocks do not leave: they are many, and give no room.
pub(super) const SMALLEST: u64 = 64 << 10;

/// The most of a block that whole chunks hold in so many bytes.
pub fn chunks_below(bytes: u64, room: u64) -> u64 {
    if room >= bytes { bytes } else { room / CHUNK * CHUNK }
}

/// A move that a mover is to make at a stop. Moves are made in their order, or the device would be
/// too small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TierMove {
    /// So many bytes of a block leave the device.
    Leave {
        /// The block.
        block: u64,
        /// Whole chunks, or all of it.
        bytes: u64,
    },
    /// So many bytes of a block come to the device.
    Come {
        /// The block.
        block: u64,
        /// Whole chunks, or all of it.
        bytes: u64,
    },
}

/// A live block.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlacedBlock {
    pub(super) bytes: u64,
    pub(super) on_device: u64,
    /// Bytes on the device as it was allocated, before anything moved.
    pub(super) home: u64,
    /// It cannot move.
    pub(super) stays: bool,
    /// Number of the event at which it was allocated, or at which something of it left the device
    /// last.
    pub(super) away: u64,
}

impl PlacedBlock {
    pub(super) fn elsewhere(&self) -> u64 {
        self.bytes - self.on_device
    }

    /// Some of it is on the device, and worth a move.
    pub(super) fn can_leave(&self) -> bool {
        !self.stays && self.on_device > 0 && self.bytes >= SMALLEST
    }
}

/// All live blocks, by key.
#[derive(Debug)]
pub(super) struct Residency {
    capacity: u64,
    used: u64,
    /// Bytes of all blocks.
    live: u64,
    blocks: BySlot<PlacedBlock>,
    /// Blocks that are not wholly on the device.
    away: BTreeSet<BlockKey>,
}

impl Residency {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, used: 0, live: 0, blocks: BySlot::default(), away: BTreeSet::new() }
    }

    pub(super) fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.used)
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(super) fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity;
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// A block may have come or left.
    fn list(&mut self, key: BlockKey) {
        match self.blocks.get(key).is_some_and(|placed| placed.elsewhere() > 0) {
            true => self.away.insert(key),
            false => self.away.remove(&key),
        };
    }

    /// Bytes of all blocks that are not on the device.
    pub(super) fn bytes_elsewhere(&self) -> u64 {
        self.live.saturating_sub(self.used)
    }

    pub(super) fn is_all_on_device(&self) -> bool {
        self.used == self.live
    }

    #[inline]
    pub(super) fn get(&self, block: BlockKey) -> Option<PlacedBlock> {
        self.blocks.get(block).copied()
    }

    /// A new block, as much of it on the device as there is room for.
    pub(super) fn insert(&mut self, block: BlockKey, bytes: u64, now: u64) -> PlacedBlock {
        let old = self.get(block).map_or(0, |old| old.on_device);
        let on_device = chunks_below(bytes, self.room() + old);
        self.insert_as(block, bytes, on_device, now)
    }

    /// A new block that lies as it was told.
    pub(super) fn insert_as(&mut self, block: BlockKey, bytes: u64, on_device: u64, now: u64) -> PlacedBlock {
        self.remove(block);
        let on_device = on_device.min(bytes);
        self.used += on_device;
        self.live += bytes;
        let placed = PlacedBlock { bytes, on_device, home: on_device, stays: false, away: now };
        self.blocks.insert(block, placed);
        self.list(block);
        placed
    }

    /// A block may lie otherwise than was thought. Does it?
    pub(super) fn correct(&mut self, key: BlockKey, on_device: u64) -> bool {
        let Some(block) = self.blocks.get_mut(key) else { return false };
        let on_device = on_device.min(block.bytes);
        let before = std::mem::replace(&mut block.on_device, on_device);
        self.used = self.used - before + on_device;
        self.list(key);
        before != on_device
    }

    /// Whether a block cannot move.
    pub(super) fn set_pinned(&mut self, block: BlockKey, is_pinned: bool) {
        if let Some(block) = self.blocks.get_mut(block) {
            block.stays = is_pinned;
        }
    }

    pub(super) fn remove(&mut self, key: BlockKey) {
        if let Some(block) = self.blocks.remove(key) {
            self.away.remove(&key);
            self.used -= block.on_device;
            self.live -= block.bytes;
        }
    }

    /// All blocks.
    pub(super) fn all(&self) -> impl Iterator<Item = (BlockKey, PlacedBlock)> {
        self.blocks.iter().map(|(block, placed)| (block, *placed))
    }

    /// Blocks that are not wholly on the device, in the order of their names.
    pub(super) fn elsewhere(&self) -> impl Iterator<Item = (BlockKey, PlacedBlock)> {
        let blocks = self.away.iter().filter_map(|block| Some((*block, self.get(*block)?)));
        blocks.filter(|(_, placed)| !placed.stays)
    }

    /// Up to `bytes` of a block come, as far as there is room. Returns how many do.
    pub(super) fn come(&mut self, key: BlockKey, bytes: u64) -> u64 {
        let room = self.room();
        let Some(block) = self.blocks.get_mut(key).filter(|block| !block.stays) else { return 0 };
        let after = chunks_below(block.bytes, block.on_device + bytes.min(room));
        let moved = after.saturating_sub(block.on_device);
        block.on_device += moved;
        self.used += moved;
        self.list(key);
        moved
    }

    /// At least `bytes` of a block leave, in whole chunks, or all of it. Returns how many do.
    pub(super) fn leave(&mut self, key: BlockKey, bytes: u64, now: u64) -> u64 {
        let Some(block) = self.blocks.get_mut(key) else { return 0 };
        let stays = block.on_device.saturating_sub(bytes) / CHUNK * CHUNK;
        let moved = block.on_device - stays;
        block.away = now;
        block.on_device = stays;
        self.used -= moved;
        self.list(key);
        moved
    }
}
