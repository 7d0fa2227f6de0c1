//! One record a piece, read while it may be changing.
//!
//! Its `id` is that of the live block, or 0. Fields change only while it is 0, and no id is given
//! twice. So the id is the record's version, as in a seqlock: if it is equal before and after the
//! fields were read, they belong to one block.
//!
//! Orderings: a field is stored with `Release`, after the id became 0, and loaded with `Acquire`. A
//! reader that loads a field of a later block therefore finds the id changed; one that loads an id
//! finds no field of an earlier block.
//!
//! Memory moves while its block lives. Then one field changes under the same id: the bytes
//! elsewhere, on one kind of tier. The end of the block does not change with it, and the device's
//! part is the rest, so a reader finds all as it was before the move or after it.

use std::ops::Range;

use wm_driver::StreamId;

use super::lazy_slice::LazySlice;
use crate::sync::atomic::{AtomicU64, Ordering::*};
use crate::vocabulary::block::{Block, BlockExtent};
use crate::vocabulary::order::Order;
use crate::vocabulary::tiers::TierBytes;

/// Slots in the first chunk; each further one has twice as many.
const FIRST: usize = 64;

/// Enough for 2³² slots.
const CHUNKS: usize = 27;

/// Order of the device, among the numbers of streams.
const DEVICE: u64 = u64::MAX;

/// A cache line: threads that change neighbours do not disturb a reader.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Slot {
    id: AtomicU64,
    address: AtomicU64,
    bytes: AtomicU64,
    order: AtomicU64,
    /// Its rounded size.
    total: AtomicU64,
    peer: AtomicU64,
    host: AtomicU64,
}

impl Slot {
    /// Hidden before.
    pub(super) fn publish(&self, block: &Block) {
        self.address.store(block.address, Release);
        self.bytes.store(block.bytes as u64, Release);
        self.order.store(block.order.stream().map_or(DEVICE, |stream| stream.0), Release);
        self.total.store(block.tiers.total(), Release);
        self.peer.store(block.tiers.peer, Release);
        self.host.store(block.tiers.host, Release);
        self.id.store(block.id, Release);
    }

    /// A part of the live block has moved from the device to another kind of tier, or back.
    pub(super) fn move_to(&self, tiers: &TierBytes) {
        self.peer.store(tiers.peer, Release);
        self.host.store(tiers.host, Release);
    }

    pub(super) fn unpublish(&self) {
        self.id.store(0, Relaxed);
    }

    /// The block, if one was live all the while.
    pub(super) fn read(&self) -> Option<Block> {
        let id = self.id.load(Acquire);
        let block = Block {
            address: self.address.load(Acquire),
            bytes: self.bytes.load(Acquire) as usize,
            id,
            order: order(self.order.load(Acquire)),
            tiers: self.tiers(),
        };
        (id != 0 && self.id.load(Relaxed) == id).then_some(block)
    }

    /// The block that an address is in, if one was live all the while: its number and its rounded
    /// range.
    #[inline]
    pub(super) fn extent(&self, address: u64) -> Option<BlockExtent> {
        let id = self.id.load(Acquire);
        let (start, bytes) = (self.address.load(Acquire), self.total.load(Acquire));
        let is_there = address.wrapping_sub(start) < bytes && id != 0 && self.id.load(Relaxed) == id;
        is_there.then_some(BlockExtent { id, address: start, bytes })
    }

    /// The bounds of the block that an address is in, if one was live all the while: by its rounded
    /// size, and from its first byte to the last that was asked for.
    #[inline]
    pub(super) fn bounds(&self, address: u64) -> Option<Range<u64>> {
        let id = self.id.load(Acquire);
        let (start, bytes, total) =
            (self.address.load(Acquire), self.bytes.load(Acquire), self.total.load(Acquire));
        let is_there = address.wrapping_sub(start) < total && id != 0 && self.id.load(Relaxed) == id;
        is_there.then(|| start..start + bytes)
    }

    fn tiers(&self) -> TierBytes {
        let (total, peer, host) =
            (self.total.load(Acquire), self.peer.load(Acquire), self.host.load(Acquire));
        TierBytes { device: total.saturating_sub(peer).saturating_sub(host), peer, host }
    }
}

fn order(number: u64) -> Order {
    if number == DEVICE { Order::Device } else { Order::Stream(StreamId(number)) }
}

/// Slots by number.
#[derive(Debug, Default)]
pub(super) struct Slots([LazySlice<Slot>; CHUNKS]);

impl Slots {
    pub(super) fn get(&self, number: u32) -> Option<&Slot> {
        let (chunk, index) = place(number);
        self.0[chunk].get(index)
    }

    pub(super) fn make(&self, number: u32) {
        let (chunk, index) = place(number);
        self.0[chunk].make(FIRST << chunk, index);
    }
}

/// Chunk, and index in it.
fn place(number: u32) -> (usize, usize) {
    let shifted = number as usize + FIRST;
    let chunk = (shifted / FIRST).ilog2() as usize;
    (chunk, shifted - (FIRST << chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_each_other_without_a_gap() {
        let places = [0, 63, 64, 191, 192, u32::MAX].map(place);
        let last = (u32::MAX as usize + FIRST) - (FIRST << 26);
        assert_eq!(places, [(0, 0), (0, 63), (1, 0), (1, 127), (2, 0), (26, last)]);
        const { assert!(CHUNKS > 26) }
    }
}
