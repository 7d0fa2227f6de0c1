//! Blocks of device memory with the pattern that was written to them.
//!
//! Every block holds its own number in all its words, except the first word of each 2 MiB page,
//! which holds the page's number as well. A page that was lost, mapped twice or mapped in the wrong
//! place shows, and so does a byte that another block's writes reached.

use wm_abi::CUdeviceptr;

use crate::driver::{Driver, Failure};

/// The page of every GPU so far.
pub(crate) const PAGE: u64 = 2 << 20;
const WORD: u64 = 4;

/// One allocation of the program.
pub(crate) struct Block {
    address: CUdeviceptr,
    pub(crate) bytes: u64,
    number: u32,
    /// Was it allocated in stream order? It is then freed so.
    ordered: bool,
}

impl Block {
    /// Allocates `bytes`, a multiple of [`PAGE`], and writes the pattern.
    pub(crate) fn new(driver: &Driver, bytes: u64, number: u32) -> Result<Self, Failure> {
        let ordered = number % 4 != 3;
        let block = Self { address: driver.allocate(bytes, ordered)?, bytes, number, ordered };
        block.write(driver)?;
        Ok(block)
    }

    fn write(&self, driver: &Driver) -> Result<(), Failure> {
        driver.fill(self.address, self.pattern(), (self.bytes / WORD) as usize)?;
        (0..self.bytes / PAGE)
            .try_for_each(|page| driver.fill(self.address + page * PAGE, self.stamp(page as u32), 1))
    }

    /// Reads the whole block back and compares.
    pub(crate) fn check(&self, driver: &Driver) -> Result<(), Failure> {
        let mut words = vec![0; (PAGE / WORD) as usize];
        for page in 0..self.bytes / PAGE {
            driver.read(&mut words, self.address + page * PAGE)?;
            if !self.is_page(&words, page as u32) {
                let (number, found) = (self.number, words[0]);
                return Err(Failure(format!(
                    "block {number}, page {page}: found {found:#010x}: not what was written"
                )));
            }
        }
        Ok(())
    }

    /// The first word is the stamp, the second the pattern, and each later one equals the one
    /// before it.
    fn is_page(&self, words: &[u32], page: u32) -> bool {
        words[0] == self.stamp(page) && words[1] == self.pattern() && words[1..words.len() - 1] == words[2..]
    }

    pub(crate) fn free(self, driver: &Driver) -> Result<(), Failure> {
        driver.free(self.address, self.ordered)
    }

    fn pattern(&self) -> u32 {
        mix(self.number, u32::MAX)
    }

    fn stamp(&self, page: u32) -> u32 {
        mix(self.number, page)
    }
}

/// Two small numbers to a word that no other pair is likely to give.
fn mix(block: u32, page: u32) -> u32 {
    let mut word = block.wrapping_mul(0x9e37_79b9) ^ page.wrapping_mul(0x85eb_ca6b);
    word ^= word >> 15;
    word = word.wrapping_mul(0xc2b2_ae35);
    word ^ (word >> 13)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: Block = Block { address: 0, bytes: PAGE, number: 7, ordered: true };

    fn page(number: u32) -> Vec<u32> {
        let mut words = vec![BLOCK.pattern(); 16];
        words[0] = BLOCK.stamp(number);
        words
    }

    #[test]
    fn a_page_is_told_from_its_neighbour_and_from_a_damaged_one() {
        assert!(BLOCK.is_page(&page(3), 3));
        assert!(!BLOCK.is_page(&page(4), 3));
        for damaged in 0..16 {
            let mut words = page(3);
            words[damaged] ^= 1;
            assert!(!BLOCK.is_page(&words, 3), "word {damaged}");
        }
    }
}
