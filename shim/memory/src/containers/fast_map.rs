//! A hash map for keys that are addresses, sizes and counters, and the hash of [`crate::containers::table`].
//!
//! SipHash would be most of a hit's time. The keys come from this crate, not from an attacker, so one multiplication per word
//! is enough, as long as the well-mixed high bits reach the low ones, which the map indexes by: addresses are multiples of 512.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(crate) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<WordHasher>>;

/// Odd, with bits spread evenly: the golden ratio in 64-bit fixed point.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

#[derive(Default)]
pub(crate) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(SPREAD);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }
}
