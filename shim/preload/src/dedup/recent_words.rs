//! Words of launches that were looked at lately, and need no second look: nothing that they reach
//! is shared and may be written, and all of it has the parameter in its books.
//!
//! A model launches the same kernels with the same weights again and again; to find the objects and
//! blocks that each word reaches takes locks.
//!
//! Invariant: a tag is that of a kernel, a place among its parameters, an address and the changes
//! so far, so it is never met again once something changed that the answer depends on: blocks that
//! are tracked, shared or freed, verdicts, and the objects at the address.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use wm_dedup::chunk::CHUNK_BYTES;

/// Tags that are kept, as a power of two: a model of 32 layers launches kernels with some 1500
/// words a token.
const PLACES_BITS: u32 = 13;

/// Counts of changes by stretches of addresses. Stretches that are 64 GiB apart have one together.
const STRETCHES: usize = 1 << 15;

/// Another entry than that of no word.
const USED: u64 = 1;

/// See above.
pub(super) struct RecentWords {
    /// Changes that may concern any address.
    changes: AtomicU64,
    /// Objects that were made or freed, by stretches of [`CHUNK_BYTES`].
    objects: [AtomicU32; STRETCHES],
    tags: [AtomicU64; 1 << PLACES_BITS],
}

/// A word of a launch with the changes before it was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WordTag(u64);

impl RecentWords {
    pub(super) const fn new() -> Self {
        Self {
            changes: AtomicU64::new(0),
            objects: [const { AtomicU32::new(0) }; STRETCHES],
            tags: [const { AtomicU64::new(0) }; 1 << PLACES_BITS],
        }
    }

    /// A word at an offset of a kernel's parameters. `kernel`: the unloads of code so far, and the
    /// handle.
    #[inline]
    pub(super) fn tag(&self, kernel: (u64, usize), offset: u32, address: u64) -> WordTag {
        let objects = self.objects[(address / CHUNK_BYTES) as usize % STRETCHES].load(Relaxed);
        let changes = self.changes.load(Relaxed) ^ u64::from(objects) << 32;
        let parts = [kernel.0, kernel.1 as u64, u64::from(offset), changes];
        WordTag(parts.into_iter().fold(mixed(address), |tag, part| mixed(tag ^ part)) | USED)
    }

    /// Was the word looked at, without a finding?
    #[inline]
    pub(super) fn has(&self, tag: WordTag) -> bool {
        self.place(tag).load(Relaxed) == tag.0
    }

    /// The word was looked at, without a finding.
    pub(super) fn note(&self, tag: WordTag) {
        self.place(tag).store(tag.0, Relaxed);
    }

    /// Blocks or verdicts have changed.
    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Relaxed);
    }

    /// An object in this range was made or freed.
    pub(super) fn object_changed(&self, range: &Range<u64>) {
        let stretches = range.start / CHUNK_BYTES..range.end.div_ceil(CHUNK_BYTES);
        if stretches.end - stretches.start > STRETCHES as u64 {
            return self.changed();
        }
        for stretch in stretches {
            self.objects[stretch as usize % STRETCHES].fetch_add(1, Relaxed);
        }
    }

    fn place(&self, WordTag(tag): WordTag) -> &AtomicU64 {
        &self.tags[(tag >> (u64::BITS - PLACES_BITS)) as usize]
    }
}

/// Every bit of the result depends on every bit of the value (the finalizer of SplitMix64).
#[inline]
fn mixed(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a word passes as one that was looked at, and a kernel writes shared
    //! memory. Hazard (latency): each launch looks at the same weights again.
    use super::*;

    const KERNEL: (u64, usize) = (0, 0x5000);
    const ADDRESS: u64 = 7 * CHUNK_BYTES + 64;

    #[test]
    fn a_word_is_known_until_something_changes() {
        let words = RecentWords::new();
        let tag = || words.tag(KERNEL, 8, ADDRESS);
        assert!(!words.has(tag()));
        let changes: [&dyn Fn(); 3] =
            [&|| words.changed(), &|| words.object_changed(&(ADDRESS..ADDRESS + 1)), &|| {
                words.object_changed(&(0..CHUNK_BYTES * (STRETCHES as u64 + 1)))
            }];
        for change in changes {
            words.note(tag());
            assert!(words.has(tag()));
            words.object_changed(&(0..7 * CHUNK_BYTES));
            words.object_changed(&(8 * CHUNK_BYTES..9 * CHUNK_BYTES));
            assert!(words.has(tag()), "other addresses");
            change();
            assert!(!words.has(tag()));
        }
    }

    #[test]
    fn a_tag_of_before_a_change_is_not_met_after_it() {
        let words = RecentWords::new();
        let before = words.tag(KERNEL, 8, ADDRESS);
        words.changed();
        words.note(before);
        assert!(!words.has(words.tag(KERNEL, 8, ADDRESS)));
    }

    #[test]
    fn words_of_other_kernels_places_and_addresses_have_other_tags() {
        let words = RecentWords::new();
        let mut tags = Vec::new();
        for unloads in 0..2 {
            for kernel in 0..16 {
                for offset in (0..64).step_by(4) {
                    tags.extend((0..16).map(|at| words.tag((unloads, kernel), offset, ADDRESS + at).0));
                }
            }
        }
        tags.sort_unstable();
        let count = tags.len();
        tags.dedup();
        assert_eq!(tags.len(), count);
    }
}
