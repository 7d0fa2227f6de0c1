//! Tracked blocks: blocks that hold bytes which arrived by copies, and the block of an address.
//!
//! Every word of a launch's arguments is looked up here. For most of them a table of bytes answers,
//! without a lock, that no tracked block is near.
//!
//! Invariants: facts are locked for moments, never across a call of the driver or the broker. A
//! freed block is in no index, and a thread that still holds it finds that it `is_gone`.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use dashmap::DashMap;
use rustc_hash::FxBuildHasher;
use wm_dedup::chunk::CHUNK_BYTES;
use wm_dedup::policy::tracked_blocks::BlockFacts;
use wm_driver::{Device, lock};
use wm_memory::{Manager, MoveRefusal, MovedRange, Quiet};

use super::noted::NotedParameters;

/// How long a step on the way back to private memory waits for calls that are being made.
pub(super) const CLOSE: Duration = Duration::from_millis(10);

/// How long such a step holds calls.
pub(super) const HELD: Duration = Duration::from_millis(2);

/// A block, from its first copy to its free.
pub(super) struct TrackedBlock {
    pub(super) manager: &'static Manager<Device>,
    pub(super) range: Range<u64>,
    /// As the manager numbers it.
    pub(super) id: u64,
    /// Some of its chunks lie in shared memory.
    is_shared: AtomicBool,
    is_gone: AtomicBool,
    pub(super) noted: NotedParameters,
    /// Chunks that are shared together.
    pub(super) unit: u64,
    facts: Mutex<BlockFacts>,
}

/// The outcome of one step on the way back to private memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnshareStep {
    /// The whole block is private.
    Done,
    /// Another step may do more.
    More,
    /// The driver refused something, or there is no memory.
    Refused,
}

impl UnshareStep {
    /// The outcome of a step, for a block that ends at an address.
    ///
    /// If the caller has seen the work end and the GPU was asked nevertheless, the copy of a move
    /// that was given up may be under way. Another step soon would get the same answer.
    fn of(outcome: Result<MovedRange, MoveRefusal>, end: u64, quiet: Quiet) -> Self {
        match outcome {
            Ok(moved) if moved.refusal.is_none() && moved.next >= end => Self::Done,
            Ok(moved) if moved.count > 0 => Self::More,
            Ok(MovedRange { refusal: None | Some(MoveRefusal::InUse | MoveRefusal::Busy), .. }) => Self::More,
            Err(MoveRefusal::InUse) if quiet == Quiet::Look => Self::More,
            Ok(_) | Err(_) => Self::Refused,
        }
    }
}

impl TrackedBlock {
    /// The block at an address. `None`: the manager has no block there, or the block is too small
    /// to be shared.
    fn at(manager: &'static Manager<Device>, address: u64) -> Option<Self> {
        let block = manager.block(address)?;
        let bytes = block.tiers.total();
        if bytes < CHUNK_BYTES || !block.address.is_multiple_of(CHUNK_BYTES) {
            return None;
        }
        let new =
            if manager.has_adopted(block.address) { BlockFacts::of_one_memory } else { BlockFacts::new };
        let facts = new(bytes, Instant::now());
        Some(Self {
            manager,
            range: block.address..block.address + bytes,
            id: block.id,
            is_shared: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            noted: NotedParameters::new(),
            unit: facts.unit(),
            facts: Mutex::new(facts),
        })
    }

    pub(super) fn facts(&self) -> MutexGuard<'_, BlockFacts> {
        lock(&self.facts)
    }

    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared.load(Relaxed)
    }

    pub(super) fn set_shared(&self, is_shared: bool) {
        self.is_shared.store(is_shared, Relaxed);
    }

    /// The block with the addresses beside it by which a kernel may reach it.
    pub(super) fn reach(&self) -> Range<u64> {
        self.range.start.saturating_sub(BESIDE)..self.range.end + BESIDE
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    /// The program still has the block, by the manager's books, too.
    pub(super) fn lives(&self) -> bool {
        !self.is_gone() && self.lives_by_books()
    }

    fn lives_by_books(&self) -> bool {
        self.manager.block(self.range.start).is_some_and(|block| block.id == self.id)
    }

    /// The block is freed, and no shared memory is mapped at its addresses any more. Until then no
    /// other block has them.
    pub(super) fn is_unmapped(&self) -> bool {
        self.is_gone() && !self.lives_by_books() && !self.manager.has_parked(self.range.clone())
    }

    /// Gives shared chunks memory of their own, as far as possible in `limit`. To be called behind
    /// the closed gate.
    pub(super) fn unshare_some(&self, quiet: Quiet, limit: Duration) -> UnshareStep {
        let outcome = self.manager.unshare(self.range.clone(), false, quiet, limit);
        UnshareStep::of(outcome, self.range.end, quiet)
    }

    pub(super) fn chunk_address(&self, index: u64) -> u64 {
        self.range.start + index * CHUNK_BYTES
    }

    pub(super) fn chunk_index(&self, address: u64) -> u64 {
        (address - self.range.start) / CHUNK_BYTES
    }
}

/// A kernel may get an address that lies this far before a block's first byte or behind its last
/// one, and reach the block by an offset: an array that is counted from one, an iterator that runs
/// backwards.
const BESIDE: u64 = 64 << 10;

/// Entries of the table of bytes.
const NEAR: usize = 1 << 17;

/// Stretches of a range that are looked up one by one. In a longer range all blocks are compared.
const MOST_STEPS: u64 = 1 << 12;

/// The block of an address.
struct BlockIndex {
    /// 1: a tracked block was in a stretch of [`CHUNK_BYTES`] whose number ends so.
    near: Box<[AtomicU8]>,
    /// No tracked block was ever below or beyond these.
    reach: [AtomicU64; 2],
    /// By every stretch that a block is in. Two tracked blocks share none, because their memory is
    /// made of whole chunks.
    blocks: DashMap<u64, Arc<TrackedBlock>, FxBuildHasher>,
}

impl BlockIndex {
    fn new() -> Self {
        let near = (0..NEAR).map(|_| AtomicU8::new(0)).collect();
        Self { near, reach: [AtomicU64::new(u64::MAX), AtomicU64::new(0)], blocks: DashMap::default() }
    }

    #[inline]
    fn near(&self, stretch: u64) -> &AtomicU8 {
        &self.near[stretch as usize & (NEAR - 1)]
    }
}

/// All tracked blocks of the process.
pub(super) struct TrackedBlocks {
    /// Made with the first block.
    index: OnceLock<BlockIndex>,
}

fn stretches(range: &Range<u64>) -> Range<u64> {
    range.start / CHUNK_BYTES..range.end.div_ceil(CHUNK_BYTES)
}

impl TrackedBlocks {
    pub(super) const fn new() -> Self {
        Self { index: OnceLock::new() }
    }

    /// The tracked block that an address is in.
    #[inline]
    pub(super) fn find(&self, address: u64) -> Option<Arc<TrackedBlock>> {
        self.with(address, Arc::clone)
    }

    /// Asks the tracked block that an address is in, and leaves its count of users alone: a launch
    /// cannot pay for that. `ask` runs under a lock of the index. It may lock facts, and makes no
    /// call of the driver. A thread that holds facts asks the index nothing.
    #[inline]
    pub(super) fn with<R>(&self, address: u64, ask: impl FnOnce(&Arc<TrackedBlock>) -> R) -> Option<R> {
        let (index, stretch) = (self.index.get()?, address / CHUNK_BYTES);
        if index.near(stretch).load(Relaxed) == 0 {
            return None;
        }
        let block = index.blocks.get(&stretch)?;
        block.range.contains(&address).then(|| ask(&block))
    }

    /// The tracked block that an address is beside: right before it, or right behind it where no
    /// other block is.
    #[inline]
    pub(super) fn beside(&self, address: u64) -> Option<Arc<TrackedBlock>> {
        let index = self.index.get()?;
        let (stretch, within) = (address / CHUNK_BYTES, address % CHUNK_BYTES);
        let is_tracked = |stretch| index.near(stretch).load(Relaxed) != 0;
        if within >= CHUNK_BYTES - BESIDE && is_tracked(stretch + 1) {
            let next = index.blocks.get(&(stretch + 1)).map(|block| Arc::clone(&block));
            return next.filter(|block| block.range.start == (stretch + 1) * CHUNK_BYTES);
        }
        // A block may end within a stretch.
        let before = if within < BESIDE { stretch.wrapping_sub(1) } else { stretch };
        if !is_tracked(before) {
            return None;
        }
        let last = index.blocks.get(&before).map(|block| Arc::clone(&block))?;
        let is_behind = last.range.end <= address && address - last.range.end < BESIDE;
        (is_behind && last.manager.block(address).is_none()).then_some(last)
    }

    /// Was there ever a tracked block?
    pub(super) fn is_any(&self) -> bool {
        self.index.get().is_some()
    }

    /// Addresses outside of it are in no tracked block.
    pub(super) fn reach(&self) -> Range<u64> {
        self.index.get().map_or(0..0, |index| index.reach[0].load(Relaxed)..index.reach[1].load(Relaxed))
    }

    /// The tracked blocks that a range touches, by address. The program says how long the range is,
    /// before the driver refuses it.
    pub(super) fn within(&self, range: &Range<u64>) -> Vec<Arc<TrackedBlock>> {
        if range.end.saturating_sub(range.start) > MOST_STEPS * CHUNK_BYTES {
            let mut blocks = self.all();
            blocks.retain(|block| block.range.start < range.end && range.start < block.range.end);
            return blocks;
        }
        let mut found: Vec<Arc<TrackedBlock>> = Vec::new();
        let mut next = range.start;
        while next < range.end {
            let block = self.find(next);
            let stretch = (next / CHUNK_BYTES + 1).saturating_mul(CHUNK_BYTES);
            next = block.as_ref().map_or(stretch, |block| block.range.end);
            found.extend(block);
        }
        found
    }

    /// Tracks the block at an address from now on.
    pub(super) fn track(&self, manager: &'static Manager<Device>, address: u64) -> Option<Arc<TrackedBlock>> {
        let block = Arc::new(TrackedBlock::at(manager, address)?);
        let index = self.index.get_or_init(BlockIndex::new);
        index.reach[0].fetch_min(block.range.start, Relaxed);
        index.reach[1].fetch_max(block.range.end, Relaxed);
        for stretch in stretches(&block.range) {
            index.blocks.insert(stretch, Arc::clone(&block));
            index.near(stretch).store(1, Relaxed);
        }
        Some(block)
    }

    /// The block that begins at an address is no longer the program's.
    pub(super) fn forget(&self, address: u64) -> Option<Arc<TrackedBlock>> {
        let block = self.find(address).filter(|block| block.range.start == address)?;
        block.is_gone.store(true, Relaxed);
        for stretch in stretches(&block.range) {
            self.index.get()?.blocks.remove_if(&stretch, |_, there| there.id == block.id);
        }
        Some(block)
    }

    /// The blocks of a device, by address.
    pub(super) fn of(&self, manager: &'static Manager<Device>) -> Vec<Arc<TrackedBlock>> {
        let mut blocks = self.all();
        blocks.retain(|block| std::ptr::eq(block.manager, manager));
        blocks
    }

    /// All blocks, by address.
    pub(super) fn all(&self) -> Vec<Arc<TrackedBlock>> {
        let Some(index) = self.index.get() else { return Vec::new() };
        let starts = index.blocks.iter().filter(|entry| *entry.key() == entry.range.start / CHUNK_BYTES);
        let mut all: Vec<_> = starts.map(|entry| Arc::clone(entry.value())).collect();
        all.sort_unstable_by_key(|block| block.range.start);
        all
    }

    /// The blocks with chunks in shared memory.
    pub(super) fn shared(&self) -> Vec<Arc<TrackedBlock>> {
        let mut blocks = self.all();
        blocks.retain(|block| block.is_shared());
        blocks
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (latency): calls of all threads are held again and again for a block that cannot
    //! become private.
    use super::*;

    #[test]
    fn a_step_is_repeated_only_where_the_next_one_may_do_more() {
        let moved = |count, next, refusal| Ok(MovedRange { count, next, refusal, ..MovedRange::default() });
        let [busy, full] = [MoveRefusal::InUse, MoveRefusal::Full].map(Some);
        let look = |outcome| UnshareStep::of(outcome, 8, Quiet::Look);
        assert_eq!(look(moved(2, 8, None)), UnshareStep::Done);
        for more in [moved(2, 4, None), moved(0, 0, None), moved(1, 8, full), moved(0, 8, busy)] {
            assert_eq!(look(more), UnshareStep::More, "{more:?}");
        }
        assert_eq!(look(moved(0, 8, full)), UnshareStep::Refused);
        assert_eq!(look(Err(MoveRefusal::InUse)), UnshareStep::More, "the work ends");
        assert_eq!(look(Err(MoveRefusal::Fixed)), UnshareStep::Refused);
    }

    #[test]
    fn after_work_that_was_seen_to_end_a_busy_gpu_is_a_refusal() {
        let seen = |outcome| UnshareStep::of(outcome, 8, Quiet::Seen);
        assert_eq!(seen(Err(MoveRefusal::InUse)), UnshareStep::Refused);
        let busy = MovedRange { next: 8, refusal: Some(MoveRefusal::InUse), ..MovedRange::default() };
        assert_eq!(seen(Ok(busy)), UnshareStep::More, "one chunk");
    }
}
