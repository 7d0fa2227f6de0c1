//! Blocks that stay where they are, or on the device, until they are freed.
//!
//! A block that was freed is forgotten when it is next met: a look costs what it finds, however
//! many blocks stay.

use std::collections::BTreeMap;
use std::ops::Range;

/// Where a block stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stay {
    /// It may come to the device, and does not leave it.
    OnDevice,
    /// Others than the process's streams use its memory.
    InPlace,
}

#[derive(Debug, Clone, Copy)]
struct StayingBlock {
    id: u64,
    stay: Stay,
}

/// See above.
#[derive(Debug, Default)]
pub(crate) struct StayingBlocks {
    /// By first address.
    blocks: BTreeMap<u64, StayingBlock>,
}

impl StayingBlocks {
    /// The live block at an address stays. What stays in place does so for good.
    pub(crate) fn insert(&mut self, address: u64, id: u64, stay: Stay) {
        let known = self.blocks.entry(address).or_insert(StayingBlock { id, stay });
        let stay = if known.id == id { known.stay.max(stay) } else { stay };
        *known = StayingBlock { id, stay };
    }

    /// How blocks stay of which bytes lie in a range. `end_of` has the end of the live block with
    /// that address and id.
    pub(crate) fn within(
        &mut self,
        range: &Range<u64>,
        end_of: impl Fn(u64, u64) -> Option<u64>,
    ) -> Option<Stay> {
        let (mut found, mut gone) = (None, Vec::new());
        for (address, block) in self.blocks.range(..range.end).rev() {
            let Some(end) = end_of(*address, block.id) else {
                gone.push(*address);
                continue;
            };
            if end > range.start {
                found = found.max(Some(block.stay));
            }
            // Live blocks do not overlap: those before it end before the range.
            if *address <= range.start {
                break;
            }
        }
        for address in gone {
            self.blocks.remove(&address);
        }
        found
    }

    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (data race): a block moves although a network card writes to it; or one that was
    //! freed keeps the next one at its address.
    use super::*;

    #[test]
    fn a_range_has_the_strongest_stay_of_the_blocks_in_it() {
        let mut staying = StayingBlocks::default();
        let end_of = |address, _| Some(address + 10);
        staying.insert(100, 1, Stay::OnDevice);
        staying.insert(110, 2, Stay::InPlace);
        staying.insert(110, 2, Stay::OnDevice);
        for (range, stay) in [
            (90..100, None),
            (90..101, Some(Stay::OnDevice)),
            (109..110, Some(Stay::OnDevice)),
            (105..115, Some(Stay::InPlace)),
            (119..200, Some(Stay::InPlace)),
            (120..200, None),
        ] {
            assert_eq!(staying.within(&range, end_of), stay, "{range:?}");
        }
    }

    #[test]
    fn a_block_that_was_freed_is_forgotten() {
        let mut staying = StayingBlocks::default();
        for address in [100, 110, 120] {
            staying.insert(address, 1, Stay::InPlace);
        }
        let second_has_gone = |address, _| (address != 110).then_some(address + 10);
        assert_eq!(staying.within(&(110..120), second_has_gone), None);
        assert_eq!(staying.blocks.len(), 2);
        staying.insert(120, 2, Stay::OnDevice);
        assert_eq!(staying.within(&(120..121), |address, _| Some(address + 10)), Some(Stay::OnDevice));
    }
}
