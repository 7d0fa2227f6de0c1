//! The ranges of addresses that the program has reserved, and which of them hold one object only.
//!
//! A kernel names an object by one address, and may reach all of it from there. How large it is no
//! call tells. It lies in one reservation, unless the program has asked for another one right
//! beside it, to continue there. So what is proven about the addresses of a reservation holds for
//! all of it, and a piece that fills a reservation is proven as a block is. A reservation of many
//! pieces has objects across their borders: PyTorch's expandable segments have weights and
//! gradients side by side, and an address in one piece says nothing about the others, unless the
//! allocator itself tells of its objects.

use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Debug, Clone, PartialEq, Eq)]
struct ReservedRange {
    end: u64,
    /// An object may go on in a reservation beside it.
    continues: bool,
    /// The ends of the objects in it, by their first addresses, if its allocator tells of them.
    objects: Option<BTreeMap<u64, u64>>,
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
        self.0.insert(range.start, ReservedRange { end: range.end, continues: is_placed, objects: None });
        joined
    }

    /// The program has given a range back.
    pub fn freed(&mut self, start: u64) {
        self.0.remove(&start);
    }

    /// The allocator of the reservation that a range lies in tells of each of its objects, and this
    /// is one from now on.
    pub fn object_made(&mut self, object: Range<u64>) {
        if let Some((_, around)) =
            self.around_mut(object.start).filter(|(_, around)| object.end <= around.end)
        {
            around.objects.get_or_insert_default().insert(object.start, object.end);
        }
    }

    /// The object that begins at an address is none any more. Returns its range.
    pub fn object_freed(&mut self, start: u64) -> Option<Range<u64>> {
        let (_, around) = self.around_mut(start)?;
        let end = around.objects.as_mut()?.remove(&start)?;
        Some(start..end)
    }

    /// The object that an address is in.
    pub fn object(&self, address: u64) -> Option<Range<u64>> {
        let (_, around) = self.around(address)?;
        let (start, end) = around.objects.as_ref()?.range(..=address).next_back()?;
        (address < *end).then_some(*start..*end)
    }

    /// The reservation that an address is in, if its allocator tells of objects.
    pub fn around_object(&self, address: u64) -> Option<Range<u64>> {
        let (start, around) = self.around(address).filter(|(_, around)| around.objects.is_some())?;
        Some(start..around.end)
    }

    /// Does the allocator of the reservation that a range lies in tell of its objects?
    pub fn has_objects(&self, range: &Range<u64>) -> bool {
        let found = self.around(range.start);
        found.is_some_and(|(_, around)| range.end <= around.end && around.objects.is_some())
    }

    fn around(&self, address: u64) -> Option<(u64, &ReservedRange)> {
        let found = self.0.range(..=address).next_back().filter(|(_, around)| address < around.end);
        found.map(|(start, around)| (*start, around))
    }

    fn around_mut(&mut self, address: u64) -> Option<(u64, &mut ReservedRange)> {
        let found = self.0.range_mut(..=address).next_back().filter(|(_, around)| address < around.end);
        found.map(|(start, around)| (*start, around))
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

    #[test]
    fn an_address_is_in_its_object_or_in_none() {
        let mut known = Reservations::new();
        known.reserved(100..200, false);
        known.reserved(200..300, false);
        assert_eq!((known.object(150), known.around_object(150)), (None, None), "nothing is told");
        known.object_made(110..130);
        known.object_made(130..190);
        assert!(known.has_objects(&(100..120)) && !known.has_objects(&(190..210)));
        for (address, object) in [(110, 110..130), (129, 110..130), (130, 130..190), (189, 130..190)] {
            assert_eq!(known.object(address), Some(object));
        }
        assert_eq!(
            [99, 109, 190, 200, 300].map(|address| known.object(address)),
            [None, None, None, None, None]
        );
        assert_eq!((known.around_object(109), known.around_object(200)), (Some(100..200), None));
        known.object_freed(130);
        assert_eq!((known.object(150), known.around_object(150)), (None, Some(100..200)));
        known.object_made(130..150);
        assert_eq!((known.object(149), known.object(150)), (Some(130..150), None));
        known.object_made(290..301);
        assert_eq!(known.object(295), None, "that is no object of this reservation");
        known.freed(100);
        known.reserved(100..200, false);
        assert_eq!(known.object(120), None, "it is another one");
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
