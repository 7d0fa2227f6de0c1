//! The names of handles, and sets of them as bits: handles come and go by the hundred with one
//! large block.

const BITS: u32 = u64::BITS;

/// Names a handle in the table; reused after the handle is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HandleKey(pub(super) u32);

/// An ordered set. Grows to the largest name it has held.
#[derive(Debug, Default)]
pub(crate) struct KeySet {
    words: Vec<u64>,
}

fn place(key: HandleKey) -> (usize, u64) {
    ((key.0 / BITS) as usize, 1 << (key.0 % BITS))
}

impl KeySet {
    /// Says whether it was not there before.
    pub(crate) fn insert(&mut self, key: HandleKey) -> bool {
        let (word, bit) = place(key);
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let fresh = self.words[word] & bit == 0;
        self.words[word] |= bit;
        fresh
    }

    /// Says whether it was there.
    pub(crate) fn remove(&mut self, key: HandleKey) -> bool {
        let (word, bit) = place(key);
        let there = self.words.get(word).is_some_and(|bits| bits & bit != 0);
        if there {
            self.words[word] &= !bit;
        }
        there
    }

    /// Lowest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = HandleKey> {
        self.words.iter().enumerate().flat_map(|(word, bits)| keys_of(word, *bits))
    }

    /// Those that another set does not have, lowest first.
    pub(crate) fn without(&self, other: &Self) -> impl Iterator<Item = HandleKey> {
        let left = |word: usize, bits: u64| bits & !other.words.get(word).copied().unwrap_or(0);
        self.words.iter().enumerate().flat_map(move |(word, bits)| keys_of(word, left(word, *bits)))
    }
}

/// The keys of a word's bits.
fn keys_of(word: usize, bits: u64) -> impl DoubleEndedIterator<Item = HandleKey> {
    let end = if bits == 0 { 0 } else { BITS };
    let set = (0..end).filter(move |bit| bits & (1 << bit) != 0);
    set.map(move |bit| HandleKey(word as u32 * BITS + bit))
}

#[cfg(test)]
mod tests {
    //! Hazard: a handle that is idle twice, or is forgotten.
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set_in_order(steps in prop::collection::vec((0u32..200, any::<bool>()), 0..200)) {
            let (mut keys, mut model) = (KeySet::default(), BTreeSet::new());
            for (name, add) in steps {
                let key = HandleKey(name);
                let changed = if add { keys.insert(key) } else { keys.remove(key) };
                prop_assert_eq!(changed, if add { model.insert(key) } else { model.remove(&key) });
                prop_assert!(keys.iter().eq(model.iter().copied()));
                prop_assert!(keys.iter().rev().eq(model.iter().rev().copied()));
            }
        }

        #[test]
        fn what_another_set_has_is_left_out(
            [one, other] in [0, 1].map(|_| prop::collection::btree_set(0u32..200, 0..100)),
        ) {
            let set = |names: &BTreeSet<u32>| {
                let mut keys = KeySet::default();
                for name in names {
                    keys.insert(HandleKey(*name));
                }
                keys
            };
            let left = one.difference(&other).map(|name| HandleKey(*name));
            prop_assert!(set(&one).without(&set(&other)).eq(left));
        }
    }
}
