//! The front cache: freed blocks, whole, by order and rounded size.
//!
//! Training repeats its sizes, so most allocations are answered from here: one hash look-up, no search, no driver
//! call. What is cached counts as used in the ledger; a miss in the back end flushes the cache into it.
//!
//! A list is a look at a cache line, and its blocks name each other, in the lines that a hit and a free look at anyhow. Lists
//! that have become empty stay, for the next free of their size, until there are too many.
//!
//! Invariant: whatever is in a list is cached for `blocks`, and whatever is cached for `blocks` is in one list.

use crate::books::blocks::{Blocks, Cached};
use crate::containers::table::{Keyed, Table};
use crate::vocabulary::order::{Order, Point};
use crate::vocabulary::sizes::Class;

/// Which blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    All,
    Of(Order),
    /// Those whose memory serves requests of a class at once.
    Packed(Class),
}

impl Part {
    fn has(self, order: Order, bytes: u64) -> bool {
        match self {
            Self::All => true,
            Self::Of(only) => order == only,
            Self::Packed(class) => Class::of(bytes) == class,
        }
    }
}

/// The cached blocks of one order and size. Each names the next; a cache line.
#[derive(Debug)]
#[repr(align(64))]
struct List {
    order: Order,
    bytes: u64,
    /// First address of the block to be given out next, or 0.
    first: u64,
    /// Of the one to be given out last, where there is a first one.
    last: u64,
    /// It is noted that there may be blocks here.
    stocked: bool,
}

impl List {
    fn new(order: Order, bytes: u64) -> Self {
        Self { order, bytes, first: 0, last: 0, stocked: false }
    }

    /// A stream gets its last freed block, whose bytes the GPU's caches may still hold; the device's order its first freed
    /// one.
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

    /// Addresses and what is noted there, in the order they would be given out.
    fn iter<'a>(&self, blocks: &'a Blocks) -> impl Iterator<Item = (u64, Cached)> + use<'a> {
        let at = move |address| Some((address, blocks.cached(address)?));
        std::iter::successors(at(self.first), move |(_, cached)| at(cached.next))
    }
}

impl Keyed for List {
    type Key = (Order, u64);

    fn key(&self) -> (Order, u64) {
        (self.order, self.bytes)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Front {
    lists: Table<List>,
    /// Those with blocks, and some that had blocks since they were last drained.
    stocked: Vec<(Order, u64)>,
    bytes: u64,
}

impl Front {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes in a live block of `bytes`, the `freed`th of its order.
    pub(crate) fn push(&mut self, order: Order, bytes: u64, address: u64, freed: u64, blocks: &mut Blocks) {
        if self.lists.is_full() {
            self.lists.retain(|list| list.stocked);
        }
        let list = self.lists.get_or_insert((order, bytes), || List::new(order, bytes));
        if !list.stocked {
            list.stocked = true;
            self.stocked.push((order, bytes));
        }
        list.push(address, freed, blocks);
        self.bytes += bytes;
    }

    /// The block that serves a request, if there is one; the device's order may have it only if `is_past` says that the GPU is
    /// done with it. Still cached for `blocks`.
    pub(crate) fn pop(
        &mut self,
        order: Order,
        bytes: u64,
        blocks: &Blocks,
        is_past: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let list = self.lists.get_mut((order, bytes))?;
        let (address, cached) = (list.first, blocks.cached(list.first)?);
        if order == Order::Device && !is_past(cached.freed) {
            return None;
        }
        list.first = cached.next;
        self.bytes -= bytes;
        Some(address)
    }

    /// Empties the cache, or a part of it. Addresses, sizes, and the points of the frees.
    pub(crate) fn drain(&mut self, part: Part, blocks: &Blocks) -> Vec<(u64, u64, Point)> {
        let mut drained = Vec::new();
        for (order, bytes) in self.stocked.extract_if(.., |(order, bytes)| part.has(*order, *bytes)) {
            let Some(list) = self.lists.get_mut((order, bytes)) else { continue };
            drained
                .extend(list.iter(blocks).map(|(address, cached)| (address, bytes, (order, cached.freed))));
            (list.first, list.stocked) = (0, false);
        }
        self.bytes -= drained.iter().map(|(_, bytes, _)| bytes).sum::<u64>();
        drained
    }

    /// Checks that every cached block is in the list of its size, once, and that what is cached adds up.
    pub(crate) fn audit(&self, blocks: &Blocks) -> Result<(), String> {
        let listed =
            self.lists.iter().flat_map(|list| list.iter(blocks).map(|(address, _)| (address, list.bytes)));
        let mut listed: Vec<(u64, u64)> = listed.collect();
        let mut cached: Vec<(u64, u64)> = blocks
            .all()
            .filter(|piece| piece.is_cached())
            .map(|piece| (piece.address, piece.bytes()))
            .collect();
        listed.sort_unstable();
        cached.sort_unstable();
        let sum: u64 = listed.iter().map(|(_, bytes)| bytes).sum();
        match (listed == cached, sum == self.bytes) {
            (false, _) => Err(format!("listed as cached {listed:x?}, cached {cached:x?}")),
            (_, false) => Err(format!("{sum} bytes cached, {} noted", self.bytes)),
            _ => Ok(()),
        }
    }
}
