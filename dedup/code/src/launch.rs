//! What one launch may write: the effects of its kernel, and the values of its parameters.
//!
//! The code alone does not tell a base from an index. The values do: of the parts of an address
//! that is a sum, one is an address, and the others are offsets. So if a word of the parameters
//! holds an address of device memory, the store goes to the block around it, and what the kernel
//! loaded is an offset. If none does, what it loaded is the address. It may also be one if two
//! words hold addresses, or one that is taken away: their difference is an offset, too.

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
    for AddressSource { words, offsets, memory, globals } in &effects.stores {
        let held = |words| places(words).filter(|offset| holds_address(*offset)).collect::<Vec<_>>();
        let (bases, others) = (held(words), held(offsets));
        // Of two addresses, or one that is taken away, the sum with a loaded one may be a third.
        let has_base = bases.len() == 1 || bases.is_empty() && *globals;
        written.loaded |= *memory && !(has_base && others.is_empty());
        written.through.extend(bases.into_iter().chain(others));
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

    fn set() -> impl Strategy<Value = WordSet> {
        prop::collection::btree_set(0..6_u32, 0..3).prop_map(|words| words.into_iter().collect())
    }

    fn source() -> impl Strategy<Value = AddressSource> {
        (set(), set(), any::<bool>(), any::<bool>())
            .prop_map(|(words, offsets, memory, globals)| AddressSource { words, offsets, memory, globals })
    }

    /// The places that a store may go to, by its source and the words that hold addresses: 0 to 5
    /// of the words, 6 of what was loaded. The sum of an odd number of addresses, half of them
    /// taken away, is an address near to any of them.
    fn possible(source: &AddressSource, held: impl Fn(u32) -> bool) -> BTreeSet<u32> {
        let added: Vec<_> = source.words.iter().filter(|word| held(*word)).collect();
        let taken: Vec<_> = source.offsets.iter().filter(|word| held(*word)).collect();
        let mut places: BTreeSet<_> = added.iter().chain(&taken).copied().collect();
        let is_index = taken.is_empty() && (added.len() == 1 || added.is_empty() && source.globals);
        if source.memory && !is_index {
            places.insert(6);
        }
        places
    }

    proptest! {
        #[test]
        fn each_store_is_covered(stores in prop::collection::vec(source(), 0..5), held in 0_u32..64) {
            let is_held = |word: u32| held >> word & 1 == 1;
            let effects = Effects { stores, ..Effects::default() };
            let written = written(&effects, |offset| offset % 8 == 0 && is_held(offset / 8));
            let places: BTreeSet<_> = effects.stores.iter().flat_map(|source| possible(source, is_held)).collect();
            let through = written.through.iter().map(|offset| offset / 8);
            prop_assert_eq!(through.chain(written.loaded.then_some(6)).collect::<BTreeSet<_>>(), places);
        }

        /// More addresses in words mean more words that are written through.
        #[test]
        fn addresses_only_add(stores in prop::collection::vec(source(), 0..5), few in 0_u32..4096, more in 0_u32..4096) {
            let effects = Effects { stores, ..Effects::default() };
            let [few, more] = [few, few | more].map(|held| written(&effects, |offset| held >> (offset / 4) & 1 == 1));
            prop_assert!(few.through.is_subset(&more.through));
        }
    }

    #[test]
    fn an_index_that_was_loaded_is_no_address() {
        let store =
            AddressSource { words: [0, 3].into_iter().collect(), memory: true, ..AddressSource::default() };
        let effects = Effects { stores: vec![store], ..Effects::default() };
        let by_base = written(&effects, |offset| offset == 24);
        assert_eq!(by_base, LaunchWrites { through: [24].into(), loaded: false });
        assert_eq!(written(&effects, |_| false), LaunchWrites { through: [].into(), loaded: true });
        let both = written(&effects, |offset| offset % 24 == 0);
        assert_eq!(both, LaunchWrites { through: [0, 24].into(), loaded: true }, "no one is the base");
    }

    #[test]
    fn a_pointer_across_two_words_counts() {
        let effects = Effects { escapes: [1, 2].into_iter().collect(), ..Effects::default() };
        assert_eq!(leaked(&effects, |offset| offset == 12), [12].into());
        assert_eq!(leaked(&effects, |_| true), [8, 12, 16].into());
    }
}
