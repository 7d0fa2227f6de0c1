//! When kernel launches used which memory last: who leaves first when a device has become full, and nothing else is known.
//!
//! Every word of a launch's arguments that may be an address notes the launch's number for the stretch of 2 MiB that it lies in; no block is looked up, for a launch is to
//! cost nanoseconds. A number that looks like an address does the same for memory that is nobody's. Copies and memsets are no uses here.
//!
//! Invariants: stretches that share an entry take turns, and what is forgotten so counts as unused; a block that is given out has no uses of its addresses' last tenant.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::launches::ADDRESS_BITS;

/// Bytes of a stretch, as a power of two. Smaller blocks share their memory with others, and do not move.
const STRETCH_BITS: u32 = 21;

/// Smallest block that is noted.
const LEAST: u64 = 1 << STRETCH_BITS;

/// Entries, as a power of two: those of 256 GiB of addresses differ.
const ENTRY_BITS: u32 = 17;

/// Bits of an entry for the launch's number, from 1. The rest tells stretches apart that share the entry.
const NUMBER_BITS: u32 = 44;

const _: () = assert!(ADDRESS_BITS - STRETCH_BITS - ENTRY_BITS + NUMBER_BITS <= u64::BITS);

static ENTRIES: [AtomicU64; 1 << ENTRY_BITS] = [const { AtomicU64::new(0) }; 1 << ENTRY_BITS];

/// Launches so far, about: those of two threads at once may count as one.
static LAUNCHES: AtomicU64 = AtomicU64::new(1);

/// A launch begins: its number.
#[inline]
pub(crate) fn launch() -> u64 {
    let number = LAUNCHES.load(Relaxed) + 1;
    LAUNCHES.store(number, Relaxed);
    number
}

/// A word of its arguments that may be an address.
#[inline]
pub(crate) fn note(word: u64, number: u64) {
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

/// A block was given out: no launch has used it.
pub(crate) fn born(address: u64, bytes: u64) {
    if bytes < LEAST {
        return;
    }
    for stretch in stretches(&(address..address + bytes)).take(ENTRIES.len()) {
        place(stretch).0.store(0, Relaxed);
    }
}

/// The number of the last launch that used a block; `None` if none did.
pub(super) fn last(block: &Range<u64>) -> Option<u64> {
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
    //! Hazard: a block is taken for one that lay at its address before, or one comes back that nothing uses.
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const BASE: u64 = 0x7f00_0000_0000;

    fn block(index: u64) -> Range<u64> {
        let start = BASE + index * 5 * LEAST;
        start..start + 3 * LEAST
    }

    proptest! {
        #[test]
        fn the_last_use_is_the_blocks_own(steps in proptest::collection::vec((0..20_u64, 0..3 * LEAST, 0..8_u32), 0..200)) {
            (0..20).for_each(|index| born(block(index).start, 3 * LEAST));
            let mut model: HashMap<u64, u64> = HashMap::new();
            for (index, offset, step) in steps {
                if step == 0 {
                    born(block(index).start, 3 * LEAST);
                    model.remove(&index);
                } else {
                    let number = launch();
                    note(block(index).start + offset, number);
                    model.insert(index, number);
                }
                for index in 0..20 {
                    prop_assert_eq!(last(&block(index)), model.get(&index).copied());
                }
            }
        }
    }

    #[test]
    fn what_shares_an_entry_is_not_taken_for_each_other() {
        let here = block(200);
        let there = here.start + (LEAST << ENTRY_BITS)..here.end + (LEAST << ENTRY_BITS);
        note(here.start, launch());
        assert!(last(&here).is_some() && last(&there).is_none());
        note(there.start, launch());
        assert!(last(&here).is_none() && last(&there).is_some());
    }
}
