//! The ranges of addresses that the program has reserved, and which of them hold one object only.
//!
//! A kernel names an object by one address, and may reach all of it from there. How large it is no
//! call tells. It lies in one reservation, unless the program has asked for another one right
//! beside it, to continue there. So what is proven about the addresses of a reservation holds for
//! all of it, and a piece that fills a reservation is proven as a block is. A reservation of many
//! pieces has objects across their borders: PyTorch's expandable segments have weights and
//! gradients side by side, and an address in one piece says nothing about the others.

use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReservedRange {
    end: u64,
    /// An object may go on in a reservation beside it.
    continues: bool,
}

/// See above. By first address.
#[derive(Debug, Default)]
pub struct Reservations(BTreeMap<u64, ReservedRange>);

impl Reservations {
    /// None.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// The driver has given the program a range. `is_placed`: the program had named a place for it.
    /// Returns the ranges that were of one object each, and are so no more.
    pub fn reserved(&mut self, range: Range<u64>, is_placed: bool) -> Vec<Range<u64>> {
        let mut joined = Vec::new();
        if is_placed {
            let before = self.0.range_mut(..range.start).next_back();
            let before = before.filter(|(_, other)| other.end == range.start);
            let neighbours = before.map(|(start, _)| *start).into_iter().chain([range.end]);
            for start in neighbours.collect::<Vec<_>>() {
                let Some(other) = self.0.get_mut(&start) else { continue };
                if !std::mem::replace(&mut other.continues, true) {
                    joined.push(start..other.end);
                }
            }
        }
        self.0.insert(range.start, ReservedRange { end: range.end, continues: is_placed });
        joined
    }

    /// The program has given a range back.
    pub fn freed(&mut self, start: u64) {
        self.0.remove(&start);
    }

    /// Is a range all that was reserved, with nothing that continues it?
    pub fn is_whole(&self, range: &Range<u64>) -> bool {
        let found = self.0.get(&range.start);
        found.is_some_and(|found| found.end == range.end && !found.continues)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (process crash): an object goes on beyond the piece that is mapped for reading only.
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_range_is_whole_as_long_as_nothing_was_asked_for_beside_it() {
        let mut known = Reservations::new();
        assert_eq!(known.reserved(4..8, false), []);
        assert_eq!(known.reserved(8..12, false), [], "the driver chose the place");
        assert!(known.is_whole(&(4..8)) && known.is_whole(&(8..12)));
        for other in [4..7, 5..8, 4..12, 12..16] {
            assert!(!known.is_whole(&other), "{other:?}");
        }
        assert_eq!(known.reserved(12..16, true), vec![Range { start: 8, end: 12 }]);
        assert!(!known.is_whole(&(8..12)) && !known.is_whole(&(12..16)) && known.is_whole(&(4..8)));
        known.freed(12);
        assert!(!known.is_whole(&(8..12)), "what lies there may be used as one object still");
        known.freed(8);
        known.reserved(8..12, false);
        assert!(known.is_whole(&(8..12)));
    }

    proptest! {
        /// Against all ranges, compared one by one: a range that was placed continues each range
        /// that it touches, until that is given back.
        #[test]
        fn it_agrees_with_a_list(steps in prop::collection::vec((0..12_u64, 1..4_u64, any::<bool>(), any::<bool>()), 0..60)) {
            let (mut known, mut list) = (Reservations::new(), Vec::<(Range<u64>, bool)>::new());
            for (start, length, is_placed, frees) in steps {
                let range = start..start + length;
                if frees {
                    known.freed(start);
                    list.retain(|(other, _)| other.start != start);
                } else if list.iter().all(|(other, _)| other.end <= start || range.end <= other.start) {
                    let mut joined = known.reserved(range.clone(), is_placed);
                    let touches = |other: &Range<u64>| other.end == start || other.start == range.end;
                    let mut expected = Vec::new();
                    for (other, continues) in list.iter_mut().filter(|(other, _)| is_placed && touches(other)) {
                        if !std::mem::replace(continues, true) {
                            expected.push(other.clone());
                        }
                    }
                    joined.sort_unstable_by_key(|range| range.start);
                    expected.sort_unstable_by_key(|range| range.start);
                    prop_assert_eq!(joined, expected);
                    list.push((range, is_placed));
                }
                for (other, continues) in &list {
                    prop_assert_eq!(known.is_whole(other), !continues);
                }
            }
        }
    }
}
