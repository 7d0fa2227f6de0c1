//! From words to the set of blocks that they lie in.
//!
//! Invariant: a set has each block once, lowest address first, so that equal sets are equal values.

use smallvec::SmallVec;
use wm_abi::CUdevice;

/// A live block, as a launch's arguments name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TouchedBlock {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// Never given twice.
    pub(crate) id: u64,
    pub(crate) device: CUdevice,
}

/// What is known of the blocks that a launch may touch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "it lies on the stack: a box would be an allocation a launch")]
pub(crate) enum Touched {
    /// The driver does not tell the kernel's parameters, or would refuse the arguments.
    Unknown,
    Blocks(SmallVec<[TouchedBlock; 16]>),
}

/// No block lies below: such a word is a number.
const LOWEST: u64 = 2 << 20;

/// No device address has more bits.
pub(crate) const ADDRESS_BITS: u32 = 57;

/// Could a block be there?
#[inline]
pub(crate) fn is_address(word: u64) -> bool {
    word >= LOWEST && word >> ADDRESS_BITS == 0
}

/// A set under way.
#[derive(Debug, Default)]
pub(super) struct Collector(SmallVec<[TouchedBlock; 16]>);

impl Collector {
    /// Adds the block that a word lies in, if it lies in one.
    #[inline]
    pub(super) fn take(&mut self, word: u64, look_up: impl FnOnce(u64) -> Option<TouchedBlock>) {
        if !is_address(word) || self.has_last(word) {
            return;
        }
        if let Some(block) = look_up(word) {
            self.0.push(block);
        }
    }

    /// Structures hold several pointers into one block.
    fn has_last(&self, word: u64) -> bool {
        self.0.last().is_some_and(|block| word.wrapping_sub(block.address) < block.bytes)
    }

    pub(super) fn finish(mut self) -> Touched {
        if !self.0.is_sorted_by_key(|block| block.address) {
            self.0.sort_unstable_by_key(|block| block.address);
        }
        self.0.dedup();
        Touched::Blocks(self.0)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a block that a kernel uses is missing from the set, or one is there that no word lies in.
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Blocks that lie apart, from their sizes and the gaps before them.
    fn blocks() -> impl Strategy<Value = Vec<TouchedBlock>> {
        proptest::collection::vec((0..4_u64, 1..5_u64), 0..40).prop_map(|sizes| {
            let mut end = LOWEST;
            let place = |(gap, units): (u64, u64)| {
                let address = end + gap * 512;
                end = address + units * 512;
                TouchedBlock { address, bytes: units * 512, id: address, device: 0 }
            };
            sizes.into_iter().map(place).collect()
        })
    }

    proptest! {
        #[test]
        fn the_set_is_the_blocks_that_words_lie_in(
            blocks in blocks(),
            words in proptest::collection::vec(prop_oneof![0..LOWEST + 90_000, any::<u64>()], 0..200),
        ) {
            let look_up = |word: u64| blocks.iter().find(|b| (b.address..b.address + b.bytes).contains(&word)).copied();
            let mut set = Collector::default();
            words.iter().for_each(|word| set.take(*word, look_up));
            let wanted: BTreeSet<_> = words.iter().filter_map(|word| look_up(*word)).collect();
            prop_assert_eq!(set.finish(), Touched::Blocks(wanted.into_iter().collect()));
        }
    }
}
