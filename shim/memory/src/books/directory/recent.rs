//! Where addresses were found last: launches name the same blocks again and again.

use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Entries, as a power of two: 2 KiB of them.
const ENTRY_BITS: u32 = 9;

/// Addresses that share an entry, as a power of two of bytes. Blocks that move are larger.
const STRETCH_BITS: u32 = 21;

/// Where no slot was found yet: a number that no piece has.
const NONE: u32 = u32::MAX;

/// Slots by a part of the address.
#[derive(Debug)]
pub(super) struct RecentSlots(Box<[AtomicU32]>);

impl Default for RecentSlots {
    fn default() -> Self {
        Self((0..1 << ENTRY_BITS).map(|_| AtomicU32::new(NONE)).collect())
    }
}

impl RecentSlots {
    /// The slot that is worth a look first.
    #[inline]
    pub(super) fn get(&self, address: u64) -> u32 {
        self.0.get(entry(address)).map_or(NONE, |entry| entry.load(Relaxed))
    }

    /// The address was found there, and not where [`RecentSlots::get`] said.
    pub(super) fn set(&self, address: u64, slot: u32) {
        self.0.get(entry(address)).into_iter().for_each(|entry| entry.store(slot, Relaxed));
    }
}

fn entry(address: u64) -> usize {
    ((address >> STRETCH_BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - ENTRY_BITS)) as usize
}
