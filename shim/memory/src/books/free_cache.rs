//! The free cache: freed blocks, whole, by order and rounded size.
//!
//! Training repeats its sizes, so most allocations are answered from here: one hash look-up, no
//! search, no driver call. A cached block counts as used in the ledger; a miss in the back end
//! flushes the cache into it.
//!
//! A bin is one cache line. Its blocks form a linked list through their own records, which a hit
//! and a free read anyway. An empty bin stays, for the next free of its size, until there are too
//! many.
//!
//! Invariant: each block in a bin is cached for `blocks`, and each block that is cached for
//! `blocks` is in one bin.

use crate::books::blocks::{Blocks, Cached};
use crate::containers::table::{Keyed, ProbingTable};
use crate::vocabulary::order::{Order, Point};
use crate::vocabulary::sizes::Class;

/// Which cached blocks to flush.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FlushScope {
    All,
    Of(Order),
    /// Those of a class: flushed, they serve requests of that class at once.
    Packed(Class),
}

impl FlushScope {
    fn has(self, order: Order, bytes: u64) -> bool {
        match self {
            Self::All => true,
            Self::Of(only) => order == only,
            Self::Packed(class) => Class::of(bytes) == class,
        }
    }
}

/// The cached blocks of one order and size, as a linked list. One cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Bin {
    order: Order,
    bytes: u64,
    /// First address of the block to be given out next, or 0.
    first: u64,
    /// First address of the block to be given out last; meaningless where `first` is 0.
    last: u64,
    /// The bin is in `FreeCache::stocked`.
    stocked: bool,
}

impl Bin {
    fn new(order: Order, bytes: u64) -> Self {
        Self { order, bytes, first: 0, last: 0, stocked: false }
    }

    /// Adds a block: for a stream at the front, since the GPU's caches may still hold its bytes;
    /// for the device's order at the end, since the block freed first is past first.
    fn push(&mut self, address: u64, freed: u64, blocks: &mut Blocks) {
        let newest_first = self.order != Order::Device;
        let next = if newest_first { self.first } else { 0 };
        blocks.cache(address, Cached { freed, next });
        if newest_first || self.first == 0 {
            self.first = address;
        } else if let Some(before) = blocks.cached(self.last) {
            blocks.cache(self.last, Cached { next: address, ..before });
        }
        self.last = address;
    }

    /// Addresses and the values noted there, in the order they would be given out.
    fn iter<'a>(&self, blocks: &'a Blocks) -> impl Iterator<Item = (u64, Cached)> + use<'a> {
        let at = move |address| Some((address, blocks.cached(address)?));
        std::iter::successors(at(self.first), move |(_, cached)| at(cached.next))
    }
}

impl Keyed for Bin {
    type Key = (Order, u64);

    fn key(&self) -> (Order, u64) {
        (self.order, self.bytes)
    }
}

#[derive(Debug, Default)]
pub(crate) struct FreeCache {
    bins: ProbingTable<Bin>,
    /// Every bin with blocks, and some that have become empty since they were last drained.
    stocked: Vec<(Order, u64)>,
    bytes: u64,
}

impl FreeCache {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes in a live block of `bytes`, the `freed`th of its order.
    pub(crate) fn push(&mut self, order: Order, bytes: u64, address: u64, freed: u64, blocks: &mut Blocks) {
        if self.bins.is_full() {
            self.bins.retain(|bin| bin.stocked);
        }
        let bin = self.bins.get_or_insert((order, bytes), || Bin::new(order, bytes));
        if !bin.stocked {
            bin.stocked = true;
            self.stocked.push((order, bytes));
        }
        bin.push(address, freed, blocks);
        self.bytes += bytes;
    }

    /// The block that serves a request, if there is one; the device's order may have it only if
    /// `is_past` says that the GPU is done with it. Still cached for `blocks`.
    pub(crate) fn pop(
        &mut self,
        order: Order,
        bytes: u64,
        blocks: &Blocks,
        is_past: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let bin = self.bins.get_mut((order, bytes))?;
        let (address, cached) = (bin.first, blocks.cached(bin.first)?);
        if order == Order::Device && !is_past(cached.freed) {
            return None;
        }
        bin.first = cached.next;
        self.bytes -= bytes;
        Some(address)
    }

    /// Empties the cache, or a part of it. Addresses, sizes, and the points of the frees.
    pub(crate) fn drain(&mut self, scope: FlushScope, blocks: &Blocks) -> Vec<(u64, u64, Point)> {
        let mut drained = Vec::new();
        for (order, bytes) in self.stocked.extract_if(.., |(order, bytes)| scope.has(*order, *bytes)) {
            let Some(bin) = self.bins.get_mut((order, bytes)) else { continue };
            drained.extend(bin.iter(blocks).map(|(address, cached)| (address, bytes, (order, cached.freed))));
            (bin.first, bin.stocked) = (0, false);
        }
        self.bytes -= drained.iter().map(|(_, bytes, _)| bytes).sum::<u64>();
        drained
    }

    /// Checks that every cached block is in the bin of its size, once, and that the sizes of the
    /// cached blocks add up.
    pub(crate) fn audit(&self, blocks: &Blocks) -> Result<(), String> {
        let binned =
            self.bins.iter().flat_map(|bin| bin.iter(blocks).map(|(address, _)| (address, bin.bytes)));
        let mut binned: Vec<(u64, u64)> = binned.collect();
        let mut cached: Vec<(u64, u64)> = blocks
            .all()
            .filter(|piece| piece.is_cached())
            .map(|piece| (piece.address, piece.bytes()))
            .collect();
        binned.sort_unstable();
        cached.sort_unstable();
        let sum: u64 = binned.iter().map(|(_, bytes)| bytes).sum();
        match (binned == cached, sum == self.bytes) {
            (false, _) => Err(format!("in bins {binned:x?}, cached {cached:x?}")),
            (_, false) => Err(format!("{sum} bytes cached, {} noted", self.bytes)),
            _ => Ok(()),
        }
    }
}
