//! From the words of a launch to the blocks that they lie in.
//!
//! Invariant: a set has each block once, lowest address first, so that equal sets are equal values.

use smallvec::SmallVec;
use wm_abi::CUdevice;
use wm_memory::BlockExtent;

use super::words::LaunchWord;
use crate::registry;

/// A live block, as a launch's arguments name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TouchedBlock {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// The manager's number, which is never given twice.
    pub(crate) id: u64,
    pub(crate) device: CUdevice,
}

/// The blocks of one launch.
pub(super) type BlockSet = SmallVec<[TouchedBlock; 4]>;

/// No block lies below: such a word is a number.
const LOWEST: u64 = 2 << 20;

/// No device address has more bits.
pub(crate) const ADDRESS_BITS: u32 = 57;

/// Could a block be there?
#[inline]
pub(crate) fn is_address(word: u64) -> bool {
    word >= LOWEST && word >> ADDRESS_BITS == 0
}

/// Adds the blocks that words lie in to an empty set, which stays where it is: to move one costs as
/// much as a look-up.
#[inline]
pub(super) fn add_blocks(
    blocks: &mut BlockSet,
    words: &[LaunchWord],
    look_up: impl Fn(u64) -> Option<TouchedBlock>,
) {
    for word in words {
        // Structures hold several pointers into one block.
        let is_in_last =
            blocks.last().is_some_and(|block| word.address.wrapping_sub(block.address) < block.bytes);
        if !is_in_last {
            look_up(word.address).into_iter().for_each(|block| blocks.push(block));
        }
    }
    if blocks.len() > 1 {
        blocks.sort_unstable_by_key(|block| block.address);
        blocks.dedup();
    }
}

/// The block that an address is in. Wait-free.
#[inline]
pub(super) fn block_at(address: u64) -> Option<TouchedBlock> {
    let manager = registry::owner(address)?;
    let BlockExtent { id, address, bytes } = manager.extent(address)?;
    Some(TouchedBlock { address, bytes, id, device: manager.gpu().ordinal() })
}

/// The blocks around these addresses, lowest address first, each once.
pub(crate) fn blocks_around(addresses: &[u64]) -> Vec<TouchedBlock> {
    let mut blocks: Vec<TouchedBlock> = addresses.iter().filter_map(|address| block_at(*address)).collect();
    blocks.sort_unstable_by_key(|block| block.address);
    blocks.dedup();
    blocks
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a block that a kernel uses is missing from the set, or the set has a
    //! block that no word lies in.
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
            let contains = |block: &&TouchedBlock, word| (block.address..block.address + block.bytes).contains(&word);
            let look_up = |word: u64| blocks.iter().find(|block| contains(block, word)).copied();
            let read: Vec<_> = words.iter().map(|address| LaunchWord { offset: 0, address: *address }).collect();
            let wanted: BTreeSet<_> = words.iter().filter_map(|word| look_up(*word)).collect();
            let mut set = BlockSet::new();
            add_blocks(&mut set, &read, look_up);
            prop_assert_eq!(set.to_vec(), wanted.into_iter().collect::<Vec<_>>());
        }
    }
}
