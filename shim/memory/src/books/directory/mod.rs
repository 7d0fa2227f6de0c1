//! The owner of an address: a second table of the live blocks, for readers that take no lock.
//!
//! Pointer queries and copies ask about addresses all the time, from any thread; they must not wait
//! for one that is allocating. A look-up is a fixed number of loads, without a loop and without a
//! retry. The writer holds the manager's lock, and never waits for a reader either.
//!
//! Three parts, of which only the last is trusted:
//! * `recent` says in which slot an address near was found last: one load instead of ten. It is a
//!   hint.
//! * `pages` says which slot an address may belong to. It is a hint, too, changed with relaxed
//!   stores where a piece comes or goes.
//! * `slots` has the block itself. A block read from a slot is whole, was live at one moment during
//!   the look-up, and is checked to contain the address.
//!
//! So an answer is right however the hint was found. And a block that is live throughout a look-up
//! is found: all hints on the way to it were written before it became live, and no piece that could
//! change them fits where it lies. ("Before" is happens-before: the reader got the address through
//! a synchronising operation.) A program that asks about a block while it frees it gets the block
//! or nothing.
//!
//! Host memory: 64 bytes a slot, in chunks that double, and slots are used again. Tables: 48 KiB,
//! 18 KiB for each GiB of addresses in use, 2 KiB for each 2 MiB in which a piece has begun, and
//! 256 bytes for each 32 KiB in which one has. They stay until the manager goes, and are used again
//! when their addresses are.

mod lazy_slice;
mod pages;
mod recent;
mod slots;

use std::ops::Range;
use std::sync::Arc;

use crate::vocabulary::block::{Block, BlockExtent};
use crate::vocabulary::tiers::TierBytes;
use pages::Pages;
use recent::RecentSlots;
use slots::Slots;

/// The tables that readers share.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    recent: RecentSlots,
    pages: Pages,
    slots: Slots,
}

impl Directory {
    /// The live block that an address is in, by its rounded size. Wait-free.
    #[inline]
    pub(crate) fn look_up(&self, address: u64) -> Option<Block> {
        let slot = self.recent.get(address);
        self.block_in(slot, address).or_else(|| self.look_up_anew(address))
    }

    #[cold]
    #[inline(never)]
    fn look_up_anew(&self, address: u64) -> Option<Block> {
        let slot = self.pages.find(address)?;
        let block = self.block_in(slot, address)?;
        self.recent.set(address, slot);
        Some(block)
    }

    /// The same block's number and rounded range, in fewer loads. Wait-free.
    #[inline]
    pub(crate) fn extent(&self, address: u64) -> Option<BlockExtent> {
        let recent = self.slots.get(self.recent.get(address)).and_then(|slot| slot.extent(address));
        recent.or_else(|| self.look_up_anew(address).map(BlockExtent::from))
    }

    #[inline]
    fn block_in(&self, slot: u32, address: u64) -> Option<Block> {
        let block = self.slots.get(slot)?.read()?;
        (address.wrapping_sub(block.address) < block.tiers.total()).then_some(block)
    }

    /// The same block's bounds: from its first byte to the last that was asked for. Wait-free.
    #[inline]
    pub(crate) fn bounds(&self, address: u64) -> Option<Range<u64>> {
        let slot = self.slots.get(self.pages.find(address)?)?;
        slot.bounds(address)
    }
}

/// The directory's one writer.
#[derive(Debug, Default)]
pub(crate) struct DirectoryWriter {
    directory: Arc<Directory>,
    spare: Vec<u32>,
    slots: u32,
}

impl DirectoryWriter {
    pub(crate) fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// Gives a piece of memory a slot. No other piece overlaps it, nor begins in the same 512
    /// bytes. Nothing is seen of it before it is published.
    pub(crate) fn insert(&mut self, address: u64, bytes: u64) -> u32 {
        let slot = self.spare.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        self.directory.slots.make(slot);
        self.directory.pages.insert(address, bytes, slot);
        slot
    }

    /// The piece is a live block from now on.
    pub(crate) fn publish(&self, slot: u32, block: &Block) {
        if let Some(slot) = self.directory.slots.get(slot) {
            slot.publish(block);
        }
    }

    /// A part of the live block has moved between the device and another tier.
    pub(crate) fn move_to(&self, slot: u32, tiers: &TierBytes) {
        if let Some(slot) = self.directory.slots.get(slot) {
            slot.move_to(tiers);
        }
    }

    /// The piece is no live block any more.
    pub(crate) fn unpublish(&self, slot: u32) {
        if let Some(slot) = self.directory.slots.get(slot) {
            slot.unpublish();
        }
    }

    /// The piece is no more.
    pub(crate) fn remove(&mut self, slot: u32, address: u64) {
        self.unpublish(slot);
        self.directory.pages.remove(address);
        self.spare.push(slot);
    }
}
