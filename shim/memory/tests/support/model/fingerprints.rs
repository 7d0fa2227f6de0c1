//! The fingerprints of a model's memory, which never collide until a test asks for it.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Model;

#[derive(Default)]
pub(super) struct ModelFingerprints {
    /// Contents of chunks, numbered.
    pub(super) numbers: BTreeMap<Vec<(u64, u64)>, u64>,
    pub(super) refuses: bool,
    pub(super) are_equal: bool,
    pub(super) refuses_reads: bool,
    /// Bytes that were found to differ although their fingerprints are the same, and their blocks.
    pub(super) unequal: Vec<(u64, Range<u64>)>,
}

impl ModelFingerprints {
    /// Of a chunk with these words.
    pub(super) fn of(&mut self, words: Vec<(u64, u64)>) -> [u64; 2] {
        if self.are_equal {
            return [0; 2];
        }
        let next = self.numbers.len() as u64;
        [*self.numbers.entry(words).or_insert(next), 0]
    }
}

impl Model {
    /// The driver takes no fingerprints, or takes them again.
    pub fn refuse_fingerprints(&self, refuses: bool) {
        self.lock().fingerprints.refuses = refuses;
    }

    /// All chunks have the same fingerprint from now on.
    pub fn make_fingerprints_equal(&self) {
        self.lock().fingerprints.are_equal = true;
    }

    /// No range can be read any more.
    pub fn fail_reads(&self) {
        self.lock().fingerprints.refuses_reads = true;
    }

    /// What was found to differ although its fingerprints are the same, by block.
    pub fn found_unequal(&self) -> Vec<(u64, Range<u64>)> {
        self.lock().fingerprints.unequal.clone()
    }
}
