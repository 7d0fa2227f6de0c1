//! Parameters that a block has in its books, for launches that come again: a launch takes no lock
//! then.
//!
//! An entry that another one replaces is found in the books again. Invariants: a block's books
//! never lose a parameter, so an entry stays right while the block lives; entries that say "only
//! reads" are dropped when a reader is accused.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wm_dedup::readers::ParameterKey;

/// Parameters of one block that are remembered, as a power of two.
const PLACES_BITS: u32 = 3;

/// The lowest bit of an entry: the parameter only reads. The others are the parameter's.
const READS: u64 = 1;

/// See above.
#[derive(Debug)]
pub(super) struct NotedParameters([AtomicU64; 1 << PLACES_BITS]);

impl NotedParameters {
    pub(super) fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 1 << PLACES_BITS])
    }

    /// Does the block know the parameter? If it `is_shared`, only a reader will do.
    #[inline]
    pub(super) fn has(&self, parameter: ParameterKey, is_shared: bool) -> bool {
        let entry = entry(parameter);
        let found = self.place(entry).load(Relaxed);
        found & !READS == entry && (found & READS != 0 || !is_shared)
    }

    /// The block's books have the parameter, and its verdict is known.
    pub(super) fn note(&self, parameter: ParameterKey, only_reads: bool) {
        let entry = entry(parameter);
        self.place(entry).store(entry | if only_reads { READS } else { 0 }, Relaxed);
    }

    /// A reader is none any more.
    pub(super) fn forget(&self) {
        self.0.iter().for_each(|place| place.store(0, Relaxed));
    }

    fn place(&self, entry: u64) -> &AtomicU64 {
        &self.0[(entry >> (u64::BITS - PLACES_BITS)) as usize]
    }
}

/// A number of the parameter. That of two functions is the same by accident once in 2^62 times; an
/// offset is told apart from each other one of its function.
#[inline]
fn entry(ParameterKey { function, offset }: ParameterKey) -> u64 {
    // The key is a hash. An odd factor keeps different offsets different.
    let mixed = function.0 as u64 ^ (u64::from(offset) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed & !READS).max(2)
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a launch passes for one that the block knows, and the block is shared
    //! while a kernel writes it.
    use wm_dedup::readers::FunctionKey;

    use super::*;

    fn parameter(function: u128, offset: u32) -> ParameterKey {
        ParameterKey { function: FunctionKey::of(function, "kernel"), offset }
    }

    #[test]
    fn a_parameter_is_known_once_it_was_noted_and_a_shared_block_takes_readers_only() {
        let noted = NotedParameters::new();
        let (one, other) = (parameter(1, 0), parameter(1, 8));
        assert!(!noted.has(one, false));
        noted.note(one, false);
        assert!(noted.has(one, false) && !noted.has(one, true) && !noted.has(other, false));
        noted.note(one, true);
        assert!(noted.has(one, true) && noted.has(one, false));
        noted.forget();
        assert!(!noted.has(one, false));
    }

    #[test]
    fn many_parameters_are_told_apart() {
        let noted = NotedParameters::new();
        let all: Vec<_> = (0..500).flat_map(|of| (0..8).map(move |at| parameter(of, 8 * at))).collect();
        for (number, of) in all.iter().enumerate() {
            noted.note(*of, true);
            let known = all.iter().filter(|other| noted.has(**other, true)).count();
            assert!((1..=8).contains(&known) && known <= number + 1, "{known} of {number}");
        }
    }
}
