//! The location of each block and the bytes that crossed the link. Every policy acts through the
//! board, so all of them pay by the same rules.
//!
//! Invariants, which a policy that breaks them fails by a panic: the device never holds more than
//! its capacity; a block that is not live is never moved; only a block that nothing has used yet is
//! placed for nothing.

use wm_memory::tiers::{CHUNK, chunks_below};

/// Bytes over the link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LinkTraffic {
    /// To the device: used from the host, by launches.
    pub(super) remote: u64,
    /// To the device: moved.
    pub(super) come: u64,
    /// To the host: moved.
    pub(super) leave: u64,
    /// Times that work had to end for moves, besides the host's own waits.
    pub(super) stops: u64,
}

impl LinkTraffic {
    pub(super) fn inbound(&self) -> u64 {
        self.remote + self.come
    }

    /// Of the busier direction: they run at once.
    pub(super) fn busier(&self) -> u64 {
        self.inbound().max(self.leave)
    }

    /// The one that takes less time.
    pub(super) fn fewer(self, other: Self) -> Self {
        if other.busier() < self.busier() { other } else { self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockContents {
    /// Not allocated yet, or freed.
    Gone,
    /// Allocated, and without contents.
    New,
    Used,
}

#[derive(Debug, Clone, Copy)]
struct BoardBlock {
    bytes: u64,
    on_device: u64,
    state: BlockContents,
}

#[derive(Debug)]
pub(super) struct Board {
    capacity: u64,
    used: u64,
    blocks: Vec<BoardBlock>,
    traffic: LinkTraffic,
}

impl Board {
    pub(super) fn new(capacity: u64, sizes: &[u64]) -> Self {
        let block = |bytes: &u64| BoardBlock { bytes: *bytes, on_device: 0, state: BlockContents::Gone };
        Self { capacity, used: 0, blocks: sizes.iter().map(block).collect(), traffic: LinkTraffic::default() }
    }

    pub(super) fn begin(&mut self, block: u32) {
        self.blocks[block as usize].state = BlockContents::New;
    }

    pub(super) fn end(&mut self, block: u32) {
        let block = &mut self.blocks[block as usize];
        self.used -= std::mem::take(&mut block.on_device);
        block.state = BlockContents::Gone;
    }

    /// A launch uses all of the block.
    pub(super) fn touch(&mut self, block: u32) {
        let block = &mut self.blocks[block as usize];
        assert!(block.state != BlockContents::Gone, "a launch uses a block that is not live");
        block.state = BlockContents::Used;
        self.traffic.remote += block.bytes - block.on_device;
    }

    pub(super) fn room(&self) -> u64 {
        self.capacity - self.used
    }

    pub(super) fn bytes(&self, block: u32) -> u64 {
        self.blocks[block as usize].bytes
    }

    pub(super) fn on_device(&self, block: u32) -> u64 {
        self.blocks[block as usize].on_device
    }

    pub(super) fn elsewhere(&self, block: u32) -> u64 {
        self.bytes(block) - self.on_device(block)
    }

    /// Places up to `bytes` of a new block on the device, as far as there is room.
    pub(super) fn place(&mut self, block: u32, bytes: u64) -> u64 {
        assert!(self.blocks[block as usize].state == BlockContents::New, "only a new block has no contents");
        self.add(block, bytes)
    }

    /// Moves up to `bytes` of a block to the device, as far as there is room.
    pub(super) fn come(&mut self, block: u32, bytes: u64) -> u64 {
        let moved = self.add(block, bytes);
        self.traffic.come += moved;
        moved
    }

    /// Moves at least `bytes` of a block to the host, in whole chunks, or all of it.
    pub(super) fn leave(&mut self, block: u32, bytes: u64) -> u64 {
        let moved = self.discard(block, bytes);
        self.traffic.leave += moved;
        moved
    }

    /// As [`Board::leave`], without a copy, for contents that no later launch reads. Only a policy
    /// that knows the future may call it.
    pub(super) fn discard(&mut self, block: u32, bytes: u64) -> u64 {
        let block = &mut self.blocks[block as usize];
        assert!(block.state != BlockContents::Gone, "dead memory is moved");
        let stays = block.on_device.saturating_sub(bytes) / CHUNK * CHUNK;
        let moved = block.on_device - stays;
        block.on_device = stays;
        self.used -= moved;
        moved
    }

    fn add(&mut self, block: u32, bytes: u64) -> u64 {
        let room = self.room();
        let block = &mut self.blocks[block as usize];
        assert!(block.state != BlockContents::Gone, "dead memory is moved");
        let after = chunks_below(block.bytes, block.on_device + bytes.min(room));
        let moved = after.saturating_sub(block.on_device);
        block.on_device += moved;
        self.used += moved;
        assert!(self.used <= self.capacity, "more on the device than it holds");
        moved
    }

    pub(super) fn stopped(&mut self) {
        self.traffic.stops += 1;
    }

    pub(super) fn traffic(&self) -> LinkTraffic {
        self.traffic
    }
}
