//! What one launch may write: the effects of its kernel, and the values of its parameters.
//!
//! The code alone does not tell a base from an index. The values do: of the parts of an address
//! that is a sum, one is an address, and the others are offsets. So if a word of the parameters
//! holds an address of device memory, the store goes to the block around it, and what the kernel
//! loaded is an offset; if none does, what it loaded is the address.

use std::collections::BTreeSet;

use crate::verdict::{AddressSource, Effects, WordSet};

/// The parameters through which a launch may write, and whether it may write elsewhere, too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaunchWrites {
    /// Bytes from the start of the parameters to the eight bytes that hold an address.
    pub through: BTreeSet<u32>,
    /// It may store through a pointer that it loads: to any memory of which the address was stored.
    pub loaded: bool,
}

/// What a launch may write. `holds_address` answers, of the eight bytes at an offset of the
/// parameters, whether their value lies in device memory, or so near to it that a kernel may get
/// there by an offset. It is asked at multiples of 4, and says no where a single parameter has less
/// than eight bytes.
pub fn written(effects: &Effects, holds_address: impl Fn(u32) -> bool) -> LaunchWrites {
    let mut written = LaunchWrites::default();
    for AddressSource { words, memory, .. } in &effects.stores {
        let bases: Vec<_> = places(words).filter(|offset| holds_address(*offset)).collect();
        written.loaded |= *memory && bases.is_empty();
        written.through.extend(bases);
    }
    written
}

/// The addresses that a launch may leave in memory, as offsets of the eight bytes that hold them.
/// Another kernel that stores through a loaded pointer may write there from now on.
pub fn leaked(effects: &Effects, holds_address: impl Fn(u32) -> bool) -> BTreeSet<u32> {
    places(&effects.escapes).filter(|offset| holds_address(*offset)).collect()
}

/// The eight bytes of each word, and those across two words of the set: a pointer in a structure
/// without its alignment.
fn places(words: &WordSet) -> impl Iterator<Item = u32> {
    words.iter().flat_map(|word| {
        let across = words.contains(word + 1).then_some(8 * word + 4);
        std::iter::once(8 * word).chain(across)
    })
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a launch writes where its effects say that it does not.
    use proptest::prelude::*;

    use super::*;

    fn source() -> impl Strategy<Value = AddressSource> {
        (prop::collection::btree_set(0..6_u32, 0..4), any::<bool>(), any::<bool>()).prop_map(
            |(words, memory, globals)| AddressSource { words: words.into_iter().collect(), memory, globals },
        )
    }

    /// A store: its source, and the part of it that is the address: a word, or what was loaded.
    fn store() -> impl Strategy<Value = (AddressSource, Option<u32>)> {
        (source(), any::<prop::sample::Index>()).prop_map(|(source, which)| {
            let words: Vec<_> = source.words.iter().collect();
            let base = (!words.is_empty()).then(|| words[which.index(words.len())]);
            (source, base)
        })
    }

    proptest! {
        /// The model draws the true base of each store first, and then values that agree with it.
        #[test]
        fn each_store_is_covered(stores in prop::collection::vec(store(), 0..5), others in 0_u32..64) {
            let held = |word: u32| {
                others >> word & 1 == 1 || stores.iter().any(|(_, base)| *base == Some(word))
            };
            let effects = Effects { stores: stores.iter().map(|(source, _)| source.clone()).collect(), ..Effects::default() };
            let written = written(&effects, |offset| offset % 8 == 0 && held(offset / 8));
            for (source, base) in &stores {
                match base {
                    Some(word) => prop_assert!(written.through.contains(&(8 * word))),
                    None => prop_assert!(written.loaded || !source.memory),
                }
            }
            let allowed = |offset: &u32| held(offset / 8) && effects.stores.iter().any(|source| source.words.contains(offset / 8));
            prop_assert!(written.through.iter().all(allowed), "no more than the words of a store");
        }

        /// The more words hold addresses, the more is written through.
        #[test]
        fn addresses_only_add(stores in prop::collection::vec(source(), 0..5), few in 0_u32..4096, more in 0_u32..4096) {
            let effects = Effects { stores, ..Effects::default() };
            let [few, more] = [few, few | more].map(|held| written(&effects, |offset| held >> (offset / 4) & 1 == 1));
            prop_assert!(few.through.is_subset(&more.through));
            prop_assert!(few.loaded || !more.loaded);
        }
    }

    #[test]
    fn an_index_that_was_loaded_is_no_address() {
        let store = AddressSource { words: [0, 3].into_iter().collect(), memory: true, globals: false };
        let effects = Effects { stores: vec![store], ..Effects::default() };
        let by_base = written(&effects, |offset| offset == 24);
        assert_eq!(by_base, LaunchWrites { through: [24].into(), loaded: false });
        assert_eq!(written(&effects, |_| false), LaunchWrites { through: [].into(), loaded: true });
    }

    #[test]
    fn a_pointer_across_two_words_counts() {
        let effects = Effects { escapes: [1, 2].into_iter().collect(), ..Effects::default() };
        assert_eq!(leaked(&effects, |offset| offset == 12), [12].into());
        assert_eq!(leaked(&effects, |_| true), [8, 12, 16].into());
    }
}
