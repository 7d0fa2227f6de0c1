//! Which launch used which memory last: the order of eviction when a device becomes full and
//! nothing else is known.
//!
//! Every word of a launch's arguments that may be an address stores the launch's number for the 2
//! MiB stretch that it lies in. No block is looked up, since a launch may cost some nanoseconds
//! only. A number that looks like an address stores for a stretch that no block is in. Copies and
//! memsets do not count as uses.
//!
//! Invariants: of two stretches that share an entry, the one that was used last has it, and the
//! other counts as unused. A block that is given out does not inherit the uses of the block that
//! had its addresses before.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::launches::{ADDRESS_BITS, LaunchWord};

/// Bytes of a stretch, as a power of two. Smaller blocks share their physical memory with others,
/// and do not move.
const STRETCH_BITS: u32 = 21;

/// Bytes of the smallest block that is recorded.
const SMALLEST: u64 = 1 << STRETCH_BITS;

/// Entries, as a power of two: those of 256 GiB of addresses differ.
const ENTRY_BITS: u32 = 17;

/// Bits of an entry for the launch's number, from 1. The rest tells stretches apart that share the
/// entry.
const NUMBER_BITS: u32 = 44;

const _: () = assert!(ADDRESS_BITS - STRETCH_BITS - ENTRY_BITS + NUMBER_BITS <= u64::BITS);

/// See above.
pub(super) struct LastUse {
    /// Made when moves are turned on: a process without moves pays for no table.
    entries: OnceLock<Box<[AtomicU64]>>,
    /// Launches so far, about: those of two threads at once may count as one.
    launches: AtomicU64,
}

/// An entry of the table, and how the stretch is marked there.
struct TaggedEntry<'a> {
    entry: &'a AtomicU64,
    tag: u64,
}

impl LastUse {
    pub(super) const fn new() -> Self {
        Self { entries: OnceLock::new(), launches: AtomicU64::new(0) }
    }

    /// Launches are recorded from now on.
    pub(super) fn turn_on(&self) {
        self.entries.get_or_init(|| (0..1 << ENTRY_BITS).map(|_| AtomicU64::new(0)).collect());
    }

    /// A kernel is about to be launched.
    #[inline]
    pub(super) fn launched(&self, words: &[LaunchWord]) {
        if words.is_empty() {
            return;
        }
        let number = self.launches.load(Relaxed) + 1;
        self.launches.store(number, Relaxed);
        for word in words {
            if let Some(TaggedEntry { entry, tag }) = self.entry(word.address >> STRETCH_BITS) {
                entry.store(tag | number, Relaxed);
            }
        }
    }

    #[inline]
    fn entry(&self, stretch: u64) -> Option<TaggedEntry<'_>> {
        let entry = self.entries.get()?.get(stretch as usize & ((1 << ENTRY_BITS) - 1))?;
        Some(TaggedEntry { entry, tag: (stretch >> ENTRY_BITS) << NUMBER_BITS })
    }

    /// A block was given out: no launch has used it yet.
    pub(super) fn forget(&self, address: u64, bytes: u64) {
        if bytes >= SMALLEST {
            let entries = stretches(&(address..address + bytes)).filter_map(|stretch| self.entry(stretch));
            entries.for_each(|entry| entry.entry.store(0, Relaxed));
        }
    }

    /// The number of the last launch that used a block; `None` if none did.
    pub(super) fn number_of(&self, block: &Range<u64>) -> Option<u64> {
        let entries = stretches(block).filter_map(|stretch| self.entry(stretch));
        let used = entries.filter_map(|TaggedEntry { entry, tag }| {
            let entry = entry.load(Relaxed);
            let number = entry & ((1 << NUMBER_BITS) - 1);
            (entry - number == tag && number > 0).then_some(number)
        });
        used.max()
    }
}

/// Those of a block, or as many as the table has entries.
fn stretches(block: &Range<u64>) -> impl Iterator<Item = u64> + use<> {
    let all = block.start >> STRETCH_BITS..((block.end - 1) >> STRETCH_BITS) + 1;
    all.take(1 << ENTRY_BITS)
}

#[cfg(test)]
mod tests {
    //! Hazard (thrashing): a block has the uses of the block that lay at its address before, and
    //! stays on the device although no launch uses it.
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const BASE: u64 = 0x7f00_0000_0000;

    fn block(index: u64) -> Range<u64> {
        let start = BASE + index * 5 * SMALLEST;
        start..start + 3 * SMALLEST
    }

    fn table() -> LastUse {
        let table = LastUse::new();
        table.turn_on();
        table
    }

    fn launch(table: &LastUse, address: u64) {
        table.launched(&[LaunchWord { offset: 0, address }]);
    }

    proptest! {
        #[test]
        fn the_last_use_is_the_blocks_own(
            steps in proptest::collection::vec((0..20_u64, 0..3 * SMALLEST, 0..8_u32), 0..200),
        ) {
            let (table, mut model, mut launches) = (table(), HashMap::<u64, u64>::new(), 0);
            for (index, offset, step) in steps {
                if step == 0 {
                    table.forget(block(index).start, 3 * SMALLEST);
                    model.remove(&index);
                } else {
                    launch(&table, block(index).start + offset);
                    launches += 1;
                    model.insert(index, launches);
                }
                for index in 0..20 {
                    prop_assert_eq!(table.number_of(&block(index)), model.get(&index).copied());
                }
            }
        }
    }

    #[test]
    fn what_shares_an_entry_is_not_taken_for_each_other() {
        let (table, here) = (table(), block(200));
        let there = here.start + (SMALLEST << ENTRY_BITS)..here.end + (SMALLEST << ENTRY_BITS);
        launch(&table, here.start);
        assert!(table.number_of(&here).is_some() && table.number_of(&there).is_none());
        launch(&table, there.start);
        assert!(table.number_of(&here).is_none() && table.number_of(&there).is_some());
    }
}
