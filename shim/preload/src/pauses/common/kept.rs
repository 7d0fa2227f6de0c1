//! The copies that a process remembers: of which memory they are, and where they lie.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use wm_abi::CUdevice;
use wm_driver::KeyedFingerprint;

use crate::pauses::devices::host_available;
use crate::registry;

/// Memory of the host that is left to programs, bytes, while copies are kept that are of no use at
/// present.
const LEFT: u64 = 4 << 30;

/// A segment, as this process numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SegmentKey(pub(super) u64);

/// A chunk in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CommonPlace {
    pub(super) segment: SegmentKey,
    pub(super) offset: u64,
}

/// A copy of a handle's worth of memory.
#[derive(Debug, Clone)]
pub(super) struct RememberedCopy {
    pub(super) device: CUdevice,
    pub(super) bytes: u64,
    /// The block that the memory was of.
    pub(super) block: u64,
    pub(super) place: CommonPlace,
    /// Of the memory, when it was seen to be equal; none where they could not be taken.
    pub(super) prints: Vec<KeyedFingerprint>,
}

/// Memory that has a copy, seen to be equal.
pub(super) struct CopiedMemory {
    pub(super) device: CUdevice,
    pub(super) range: Range<u64>,
    pub(super) block: u64,
    pub(super) place: CommonPlace,
}

/// See above, by the first address of the memory.
#[derive(Debug, Default)]
pub(super) struct RememberedCopies(BTreeMap<u64, RememberedCopy>);

impl RememberedCopies {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (u64, &RememberedCopy)> {
        self.0.iter().map(|(address, copy)| (*address, copy))
    }

    pub(super) fn keep(&mut self, address: u64, copy: RememberedCopy) {
        self.0.insert(address, copy);
    }

    /// The program has freed some of the blocks.
    pub(super) fn forget_freed(&mut self) {
        self.0.retain(|address, copy| copy.lives(*address));
    }

    /// The segments in which they lie.
    pub(super) fn segments(&self) -> HashSet<SegmentKey> {
        self.0.values().map(|copy| copy.place.segment).collect()
    }
}

impl RememberedCopy {
    /// Has the program the block still?
    pub(super) fn lives(&self, address: u64) -> bool {
        let block = registry::existing(self.device).and_then(|manager| manager.block(address));
        block.is_some_and(|block| block.id == self.block)
    }
}

/// Has the host too little memory for copies of so many bytes that are of no use at present?
pub(super) fn is_host_short(bytes: u64) -> bool {
    host_available() < bytes.max(LEFT)
}
