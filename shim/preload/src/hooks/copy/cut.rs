//! Cuts a copy into parts that cross no border between tiers: pure arithmetic, without a driver.
//!
//! A copy is `size` bytes, rows and layers, and each end has its own address for every row. The
//! driver looks at an end as the one range from its first byte to its last, gaps between rows
//! included. After the cut, no part has a border inside its range at either end.

use crate::copies::{CopySize, StridedRange};

/// A part of a copy: its first byte, row and layer in the whole, and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hooks) struct CopyPart {
    pub(in crate::hooks) at: CopySize,
    pub(in crate::hooks) size: CopySize,
}

/// A cut through a part along one dimension: before `place`, and, if `behind`, also before the
/// place that follows.
struct Cut {
    dimension: usize,
    place: u64,
    behind: bool,
}

/// How to cut `part` so that `border` lies inside the range of fewer rows and layers. `None` if it
/// is not inside the part's range.
fn cut_at(end: &StridedRange, part: &CopyPart, border: u64) -> Option<Cut> {
    let start = end.byte_at(&part.at);
    let inside = StridedRange { address: start, ..*end }.range(&part.size);
    let offset = border.checked_sub(start).filter(|offset| *offset > 0 && border < inside.end)?;
    let dimension = (0..3).rev().find(|axis| part.size[*axis] > 1 && end.steps[*axis] > 0)?;
    let (place, rest) = (offset / end.steps[dimension], offset % end.steps[dimension]);
    // Rows that overlap reach further than their number says.
    let last = part.size[dimension] - 1;
    Some(Cut { dimension, place: place.min(last), behind: rest > 0 || place > last })
}

impl CopyPart {
    /// A copy of this size in one part.
    pub(in crate::hooks) fn whole(size: CopySize) -> Self {
        Self { at: [0; 3], size }
    }

    /// The part from one place of a dimension to another. `None` if that is empty.
    fn section(&self, dimension: usize, from: u64, to: u64) -> Option<Self> {
        let mut part = *self;
        part.at[dimension] += from;
        part.size[dimension] = to.checked_sub(from).filter(|size| *size > 0)?;
        Some(part)
    }

    /// The two or three parts that a cut leaves, in order.
    fn sections(&self, cut: &Cut) -> impl DoubleEndedIterator<Item = Self> {
        let end = self.size[cut.dimension];
        let behind = if cut.behind { (cut.place + 1).min(end) } else { cut.place };
        let places = [(0, cut.place), (cut.place, behind), (behind, end)];
        places.map(|(from, to)| self.section(cut.dimension, from, to)).into_iter().flatten()
    }
}

/// The parts of a copy, in the order of its bytes. Each end comes with the addresses of the borders
/// in its range.
pub(in crate::hooks) fn cut(size: CopySize, ends: &[(StridedRange, Vec<u64>)]) -> Vec<CopyPart> {
    let (mut open, mut done) = (vec![CopyPart::whole(size)], Vec::new());
    while let Some(part) = open.pop() {
        let found =
            ends.iter().find_map(|(end, borders)| borders.iter().find_map(|at| cut_at(end, &part, *at)));
        match found {
            Some(cut) => open.extend(part.sections(&cut).rev()),
            None => done.push(part),
        }
    }
    done
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a copy in parts misses bytes, copies some twice, or still crosses a
    //! border.
    use proptest::prelude::*;

    use super::*;

    fn end(size: CopySize, slack: [u64; 2], address: u64) -> StridedRange {
        let pitch = size[0] + slack[0];
        StridedRange { address, steps: [1, pitch, pitch * (size[1] + slack[1])] }
    }

    fn ends() -> impl Strategy<Value = (CopySize, Vec<(StridedRange, Vec<u64>)>)> {
        let size = prop_oneof![[1..200_u64, 1..2, 1..2], [1..9_u64, 1..9, 1..5]];
        size.prop_flat_map(|size| {
            let one = ([0..4_u64, 0..3_u64], 0..500_u64, prop::collection::vec(0..1500_u64, 0..4));
            let one = one.prop_map(move |(slack, address, borders)| (end(size, slack, address), borders));
            (Just(size), prop::collection::vec(one, 1..3))
        })
    }

    proptest! {
        #[test]
        fn parts_are_the_copy_and_cross_nothing((size, ends) in ends()) {
            let parts = cut(size, &ends);
            let mut seen = vec![0; (size[0] * size[1] * size[2]) as usize];
            for part in &parts {
                for (end, borders) in &ends {
                    let range = StridedRange { address: end.byte_at(&part.at), ..*end }.range(&part.size);
                    prop_assert!(!borders.iter().any(|at| range.start < *at && *at < range.end), "{part:?}");
                }
                for z in part.at[2]..part.at[2] + part.size[2] {
                    for y in part.at[1]..part.at[1] + part.size[1] {
                        for x in part.at[0]..part.at[0] + part.size[0] {
                            seen[((z * size[1] + y) * size[0] + x) as usize] += 1;
                        }
                    }
                }
            }
            prop_assert!(seen.iter().all(|times| *times == 1), "{seen:?}");
            let borders: usize = ends.iter().map(|(_, borders)| borders.len()).sum();
            prop_assert!(parts.len() <= 1 + 6 * borders, "{} parts for {borders} borders", parts.len());
        }
    }

    #[test]
    fn without_a_border_inside_it_stays_whole() {
        let ends = [(StridedRange::linear(100), vec![100, 150]), (StridedRange::linear(1000), vec![])];
        assert_eq!(cut([50, 1, 1], &ends), [CopyPart::whole([50, 1, 1])]);
    }

    #[test]
    fn a_border_between_rows_parts_rows_only() {
        let end = StridedRange { address: 0, steps: [1, 16, 0] };
        let parts = cut([10, 4, 1], &[(end, vec![32])]);
        assert_eq!(
            parts,
            [CopyPart { at: [0; 3], size: [10, 2, 1] }, CopyPart { at: [0, 2, 0], size: [10, 2, 1] }]
        );
    }

    #[test]
    fn a_copy_that_ends_behind_the_last_address_stays_whole() {
        let ends = [(StridedRange { address: 64, steps: [1, u64::MAX / 2, 1] }, vec![65])];
        assert_eq!(cut([8, 4, 1], &ends), [CopyPart::whole([8, 4, 1])]);
    }
}
