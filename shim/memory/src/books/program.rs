//! The program's side of memory: its live blocks, and freed ones that the free cache keeps whole.
//!
//! Invariants: `live` sums the live blocks, rounded; `pooled` sums the bytes that were asked for by
//! the live blocks of streams; a block is in the cache exactly if `blocks` says that it is cached.
//!
//! Layout: a hit and a free look at all fields but the last, so they lie side by side, in this
//! order.

use std::ops::Range;
use std::sync::Arc;

use wm_driver::Tier;
use wm_schema::Counters;

use crate::books::blocks::{BlockRecord, Blocks};
use crate::books::directory::Directory;
use crate::books::free_cache::{FlushScope, FreeCache};
use crate::vocabulary::moves::MoveRefusal;
use crate::vocabulary::order::{Order, Point};
use crate::vocabulary::request::Request;
use crate::vocabulary::sizes::CACHED_BELOW;
use crate::vocabulary::tiers::{Gauge, Level, PastPeaks, TierBytes, only};

#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct ProgramBlocks {
    cache: FreeCache,
    blocks: Blocks,
    live: Gauge,
    /// Bytes asked for by the live blocks of streams: the bytes that a stream-ordered pool calls
    /// used.
    pooled: Level,
    /// The high-water mark of live device memory since the last query.
    recent_peak: u64,
    /// A hit and a free do not look at this.
    past: PastPeaks,
}

/// A block that is live no more, and not in the cache yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Returned {
    pub(crate) bytes: u64,
    /// It may go into the cache.
    pub(crate) cacheable: bool,
}

impl ProgramBlocks {
    /// Gives out the cached block that serves a request, if there is one. The device's order may
    /// have it only if `is_past` says that the GPU is done with it.
    #[inline]
    pub(crate) fn hit(
        &mut self,
        request: &Request,
        is_past: impl Fn(u64) -> bool,
        counters: &mut Counters,
    ) -> Option<u64> {
        let address = self.cache.pop(request.order, request.bytes, &self.blocks, is_past)?;
        counters.hits += 1;
        self.give_out(address, request, counters);
        Some(address)
    }

    /// Makes a granted or cached block the program's.
    #[inline]
    pub(crate) fn give_out(&mut self, address: u64, request: &Request, counters: &mut Counters) {
        let Some(record) = self.blocks.give_out(address, request.asked, request.order) else { return };
        self.live.add(&record.tiers);
        self.recent_peak = self.recent_peak.max(self.live.now.device);
        self.pooled.add(record.pooled());
        counters.allocations += 1;
        counters.overflows += u64::from(record.tiers.elsewhere() > 0);
    }

    /// Takes the live block that starts at an address off the sums.
    #[inline]
    pub(crate) fn take_back(&mut self, address: u64) -> Option<Returned> {
        let record = self.blocks.starting_at(address).filter(|record| !record.adopted)?;
        let (bytes, tiers, pooled) = (record.bytes(), record.tiers, record.pooled());
        // Not cached: a very large block; one with a part elsewhere, since a hit would give out
        // slow memory although the device may have room again; one that has its extent to itself,
        // since its addresses must not come back soon; one that is shared, since the program must
        // not write there.
        let cacheable = tiers.elsewhere() == 0 && bytes < CACHED_BELOW && !record.alone && !record.shared;
        self.live.subtract(&tiers);
        self.pooled.subtract(pooled);
        Some(Returned { bytes, cacheable })
    }

    /// Caches a block that was taken back, the `freed`th free of its order.
    #[inline]
    pub(crate) fn cache(&mut self, order: Order, bytes: u64, address: u64, freed: u64) {
        self.cache.push(order, bytes, address, freed, &mut self.blocks);
    }

    /// Empties the cache, or a part of it. Addresses, sizes, and the points of the frees; the
    /// blocks are to be removed.
    pub(crate) fn drain(&mut self, scope: FlushScope) -> Vec<(u64, u64, Point)> {
        self.cache.drain(scope, &self.blocks)
    }

    /// Notes a block that is being granted.
    pub(crate) fn insert(&mut self, record: BlockRecord) {
        self.blocks.insert(record);
    }

    pub(crate) fn remove(&mut self, address: u64) -> Option<BlockRecord> {
        self.blocks.remove(address)
    }

    /// A piece of the program's is a block from now on. No sum counts it.
    pub(crate) fn adopt(&mut self, address: u64, tiers: TierBytes) {
        let bytes = tiers.total() as usize;
        self.blocks.insert(BlockRecord::of_piece(address, tiers));
        self.blocks.give_out(address, bytes, Order::Device);
    }

    /// Does the free cache keep anything in a range?
    pub(crate) fn has_cached(&self, range: &Range<u64>) -> bool {
        self.blocks.within(range).any(BlockRecord::is_cached)
    }

    /// A part of a live block gets memory that other processes use too. The free cache is not to
    /// keep the block.
    pub(crate) fn mark_shared(&mut self, address: u64) -> Result<(), MoveRefusal> {
        if self.blocks.mark_shared(address) { Ok(()) } else { Err(MoveRefusal::Unfit) }
    }

    /// The memory behind a range has moved from one tier to another.
    pub(crate) fn move_to(&mut self, range: &Range<u64>, tiers: [Tier; 2]) {
        let parts = self.blocks.within(range).map(|record| (record.address, shared(record, range)));
        let touched: Vec<(u64, u64)> = parts.collect();
        for (address, bytes) in touched {
            if self.blocks.move_to(address, bytes, tiers).is_some_and(|record| !record.adopted) {
                let [from, to] = tiers.map(|tier| only(tier, bytes));
                self.live.subtract(&from);
                self.live.add(&to);
            }
        }
    }

    /// Forgets all blocks. Peaks stay.
    pub(crate) fn forget_all(&mut self) {
        self.cache = FreeCache::default();
        self.blocks.clear();
        self.live.now = TierBytes::default();
        self.pooled.now = 0;
    }

    pub(crate) fn directory(&self) -> &Arc<Directory> {
        self.blocks.directory()
    }

    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    pub(crate) fn cached_bytes(&self) -> u64 {
        self.cache.bytes()
    }

    pub(crate) fn live(&self) -> Gauge {
        self.live
    }

    /// The bytes of pieces beside the live ones change from `pieces`.
    pub(crate) fn fold_peaks(&mut self, pieces: &TierBytes) {
        self.past.fold(&mut self.live, pieces);
    }

    /// Live bytes at most, beside so many of pieces now.
    pub(crate) fn peaks(&self, pieces: &TierBytes) -> PastPeaks {
        self.past.read(self.live, pieces)
    }

    pub(crate) fn pooled(&self) -> Level {
        self.pooled
    }

    /// The most of the device that was live since this was called last.
    pub(crate) fn take_recent_peak(&mut self) -> u64 {
        std::mem::replace(&mut self.recent_peak, self.live.now.device)
    }

    pub(crate) fn reset_peaks(&mut self, pieces: &TierBytes) {
        self.past.reset(&mut self.live, pieces);
        self.pooled.reset_peak();
    }

    pub(crate) fn audit(&self) -> Result<(), String> {
        self.blocks.audit()?;
        self.cache.audit(&self.blocks)?;
        let mut live = TierBytes::default();
        self.blocks.live().for_each(|block| live.add(&block.tiers));
        if live == self.live.now { Ok(()) } else { Err(format!("{live:?} live, {:?} noted", self.live.now)) }
    }
}

/// Bytes of a record that lie in a range.
fn shared(record: &BlockRecord, range: &Range<u64>) -> u64 {
    let end = record.address + record.bytes();
    end.min(range.end).saturating_sub(record.address.max(range.start))
}
