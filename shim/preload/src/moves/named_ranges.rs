//! Ranges that graphs name, each counted: two graphs may name one block, and blocks of other times
//! may overlap.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ends and counts by starts: of ranges that are apart from each other.
#[derive(Debug, Default)]
pub(super) struct NamedRanges(BTreeMap<u64, (u64, usize)>);

impl NamedRanges {
    pub(super) fn add(&mut self, range: &Range<u64>) {
        let mut at = range.start;
        for start in self.cut_within(range) {
            if at < start {
                self.0.insert(at, (start, 1));
            }
            if let Some((end, count)) = self.0.get_mut(&start) {
                *count += 1;
                at = *end;
            }
        }
        if at < range.end {
            self.0.insert(at, (range.end, 1));
        }
    }

    /// Takes back one [`Self::add`] of the range. Returns the parts that are not named any more.
    pub(super) fn remove(&mut self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut gone = Vec::new();
        for start in self.cut_within(range) {
            let Some((end, count)) = self.0.get_mut(&start) else { continue };
            *count -= 1;
            if *count == 0 {
                gone.push(start..*end);
                self.0.remove(&start);
            }
        }
        gone
    }

    /// Cuts at the ends of a range. Returns the starts of the ranges between them, lowest first.
    fn cut_within(&mut self, range: &Range<u64>) -> Vec<u64> {
        [range.start, range.end].into_iter().for_each(|at| self.cut(at));
        self.0.range(range.clone()).map(|(start, _)| *start).collect()
    }

    fn cut(&mut self, at: u64) {
        if let Some((_, whole)) = self.0.range_mut(..at).next_back()
            && whole.0 > at
        {
            let behind = *whole;
            whole.0 = at;
            self.0.insert(at, behind);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a block that a live graph names may move. Hazard (silent
    //! degradation): one that no live graph names stays.
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_range_is_named_until_it_was_taken_back_as_often(
            steps in proptest::collection::vec((any::<prop::sample::Index>(), any::<bool>(), 0..30_u64, 1..12_u64), 0..40),
        ) {
            let (mut named, mut added) = (NamedRanges::default(), Vec::<Range<u64>>::new());
            for (which, is_removal, start, bytes) in steps {
                let count = |added: &[Range<u64>], address| added.iter().filter(|range| range.contains(&address)).count();
                if is_removal && !added.is_empty() {
                    let range = added.swap_remove(which.index(added.len()));
                    let gone: BTreeSet<u64> = named.remove(&range).into_iter().flatten().collect();
                    prop_assert_eq!(gone, range.filter(|address| count(&added, *address) == 0).collect());
                } else {
                    named.add(&(start..start + bytes));
                    added.push(start..start + bytes);
                }
                for address in 0..50 {
                    let of = named.0.range(..=address).next_back().filter(|(_, (end, _))| *end > address);
                    prop_assert_eq!(of.map_or(0, |(_, (_, times))| *times), count(&added, address));
                }
            }
        }
    }
}
