//! A set of addresses, as ranges that are apart from each other.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ends by starts.
#[derive(Debug, Default)]
pub(crate) struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    pub(crate) fn insert(&mut self, range: &Range<u64>) {
        self.remove(range);
        if !range.is_empty() {
            self.0.insert(range.start, range.end);
        }
    }

    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        while let Some((start, end)) = self.last_before(range.end).filter(|(_, end)| *end > range.start) {
            self.0.remove(&start);
            if end > range.end {
                self.0.insert(range.end, end);
            }
            if start < range.start {
                self.0.insert(start, range.start);
            }
        }
    }

    /// Is an address of the range in it?
    pub(crate) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.last_before(range.end).is_some_and(|(_, end)| end > range.start)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    fn last_before(&self, address: u64) -> Option<(u64, u64)> {
        self.0.range(..address).next_back().map(|(start, end)| (*start, *end))
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a range that is in the set is not found. Hazard (silent degradation):
    //! one that left it is.
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_has_what_a_set_of_addresses_has(
            steps in proptest::collection::vec((any::<bool>(), 0..40_u64, 0..12_u64), 0..40),
            asked in proptest::collection::vec((0..40_u64, 1..12_u64), 1..20),
        ) {
            let (mut set, mut model) = (RangeSet::default(), BTreeSet::new());
            for (is_in, start, bytes) in steps {
                let range = start..start + bytes;
                if is_in { set.insert(&range) } else { set.remove(&range) }
                if is_in { model.extend(range) } else { model.retain(|address| !range.contains(address)) }
                for (start, bytes) in &asked {
                    let range = *start..start + bytes;
                    prop_assert_eq!(set.overlaps(&range), model.range(range).next().is_some());
                }
            }
        }
    }
}
