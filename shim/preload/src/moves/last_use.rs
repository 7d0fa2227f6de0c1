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
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::launches::{ADDRESS_BITS, Launch};

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

static ENTRIES: [AtomicU64; 1 << ENTRY_BITS] = [const { AtomicU64::new(0) }; 1 << ENTRY_BITS];

/// Launches so far, about: those of two threads at once may count as one.
static LAUNCHES: AtomicU64 = AtomicU64::new(1);

/// A kernel is about to be launched.
pub(crate) fn launched(launch: &Launch) {
    if launch.words().is_empty() {
        return;
    }
    let number = next_number();
    launch.words().iter().for_each(|word| record(word.address, number));
}

/// The number of a launch that begins.
#[inline]
fn next_number() -> u64 {
    let number = LAUNCHES.load(Relaxed) + 1;
    LAUNCHES.store(number, Relaxed);
    number
}

/// A launch has a word in its arguments that may be an address.
#[inline]
fn record(word: u64, number: u64) {
    let (entry, tag) = place(word >> STRETCH_BITS);
    entry.store(tag | number, Relaxed);
}

/// The entry of a stretch, and how it is marked there.
#[inline]
fn place(stretch: u64) -> (&'static AtomicU64, u64) {
    let tag = (stretch >> ENTRY_BITS) << NUMBER_BITS;
    (&ENTRIES[stretch as usize & (ENTRIES.len() - 1)], tag)
}

fn stretches(block: &Range<u64>) -> Range<u64> {
    block.start >> STRETCH_BITS..((block.end - 1) >> STRETCH_BITS) + 1
}

/// A block was given out: no launch has used it yet.
pub(crate) fn forget(address: u64, bytes: u64) {
    if bytes < SMALLEST {
        return;
    }
    for stretch in stretches(&(address..address + bytes)).take(ENTRIES.len()) {
        place(stretch).0.store(0, Relaxed);
    }
}

/// The number of the last launch that used a block; `None` if none did.
pub(super) fn number_of(block: &Range<u64>) -> Option<u64> {
    let used = stretches(block).take(ENTRIES.len()).filter_map(|stretch| {
        let (entry, tag) = place(stretch);
        let entry = entry.load(Relaxed);
        let number = entry & ((1 << NUMBER_BITS) - 1);
        (entry - number == tag && number > 0).then_some(number)
    });
    used.max()
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

    proptest! {
        #[test]
        fn the_last_use_is_the_blocks_own(
            steps in proptest::collection::vec((0..20_u64, 0..3 * SMALLEST, 0..8_u32), 0..200),
        ) {
            (0..20).for_each(|index| forget(block(index).start, 3 * SMALLEST));
            let mut model: HashMap<u64, u64> = HashMap::new();
            for (index, offset, step) in steps {
                if step == 0 {
                    forget(block(index).start, 3 * SMALLEST);
                    model.remove(&index);
                } else {
                    let number = next_number();
                    record(block(index).start + offset, number);
                    model.insert(index, number);
                }
                for index in 0..20 {
                    prop_assert_eq!(number_of(&block(index)), model.get(&index).copied());
                }
            }
        }
    }

    #[test]
    fn what_shares_an_entry_is_not_taken_for_each_other() {
        let here = block(200);
        let there = here.start + (SMALLEST << ENTRY_BITS)..here.end + (SMALLEST << ENTRY_BITS);
        record(here.start, next_number());
        assert!(number_of(&here).is_some() && number_of(&there).is_none());
        record(there.start, next_number());
        assert!(number_of(&here).is_none() && number_of(&there).is_some());
    }
}
