//! The addresses of blocks in a recording. A program's blocks come to the same addresses again and
//! again, so an address has a number from its first block on, and the digits of the address are
//! written once.

use rustc_hash::FxHashMap;

use super::line::TraceWord;

/// Addresses without a live block that are remembered, at most.
const IDLE_PLACES: usize = 1 << 16;

/// Where blocks are, and where they were.
#[derive(Debug)]
pub(super) struct BlockPlaces {
    places: FxHashMap<u64, BlockPlace>,
    /// Number of the next address that is written in full.
    next: u64,
    /// With so many places, those without a block are forgotten.
    most: usize,
}

#[derive(Debug)]
struct BlockPlace {
    number: u64,
    /// The number of the live block there.
    block: Option<u64>,
}

impl BlockPlaces {
    pub(super) fn new() -> Self {
        Self { places: FxHashMap::default(), next: 0, most: IDLE_PLACES }
    }

    /// The live block that starts at an address.
    #[inline]
    pub(super) fn block(&self, address: u64) -> Option<u64> {
        self.places.get(&address)?.block
    }

    /// The block at an address is there no more; its number.
    #[inline]
    pub(super) fn freed(&mut self, address: u64) -> Option<u64> {
        self.places.get_mut(&address)?.block.take()
    }

    /// A block comes to an address. Returns the block that was live there, and the word for the
    /// address.
    #[inline]
    pub(super) fn allocated(&mut self, address: u64, block: u64) -> (Option<u64>, TraceWord) {
        match self.places.get_mut(&address) {
            Some(place) => (place.block.replace(block), TraceWord::Earlier(place.number)),
            None => {
                self.remember(address, block);
                (None, TraceWord::Number(address))
            }
        }
    }

    #[cold]
    fn remember(&mut self, address: u64, block: u64) {
        if self.places.len() >= self.most {
            self.places.retain(|_, place| place.block.is_some());
            self.most = 2 * self.places.len() + IDLE_PLACES;
        }
        self.places.insert(address, BlockPlace { number: self.next, block: Some(block) });
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a number stands for another address, or a live block is forgotten.
    //! Hazard (resource leak): a program with ever new addresses fills the memory.
    use super::*;

    /// What a reader makes of the word.
    fn read(written: &mut Vec<u64>, word: TraceWord) -> u64 {
        match word {
            TraceWord::Number(address) => written.push(address),
            TraceWord::Earlier(number) => return written[number as usize],
            TraceWord::Sign(_) => panic!("no address"),
        }
        written[written.len() - 1]
    }

    #[test]
    fn a_reader_finds_each_address_also_when_the_first_ones_are_forgotten() {
        let (mut places, mut written) = (BlockPlaces::new(), Vec::new());
        let stays: Vec<u64> = (0..100).map(|index| 0x40_0000 + 16 * index).collect();
        for (block, address) in stays.iter().enumerate() {
            assert_eq!(places.allocated(*address, block as u64).0, None);
            written.push(*address);
        }
        for address in (0..5 * IDLE_PLACES as u64).map(|index| 0x9000_0000 + 512 * (index % 200_000)) {
            let (before, word) = places.allocated(address, 7);
            assert_eq!((before, read(&mut written, word)), (None, address));
            assert_eq!(places.freed(address), Some(7));
            assert!(places.places.len() <= 2 * IDLE_PLACES, "the memory is bounded");
        }
        for (block, address) in stays.iter().enumerate() {
            assert_eq!(places.block(*address), Some(block as u64));
            let (before, word) = places.allocated(*address, 9);
            assert_eq!((before, read(&mut written, word)), (Some(block as u64), *address));
            assert!(matches!(word, TraceWord::Earlier(number) if number < 100), "it is not written again");
        }
        assert_eq!((places.freed(1), places.block(1)), (None, None));
    }
}
