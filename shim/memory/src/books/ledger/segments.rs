//! The points that the bytes of a free run wait for: one segment after the other, each with its own
//! points.
//!
//! Neighbours that were freed in different streams are one run, since together they can serve a
//! large request; but a stream may have its own part of it at once. So a run has one segment for
//! each part that waits for other points.
//!
//! Invariants: lengths are not 0 and add up to the run's; neighbours wait for different points;
//! there are at most [`SEGMENTS`] of them. Where there would be more, two are merged into one that
//! waits for the points of both: it becomes usable later than necessary, never earlier.

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use crate::vocabulary::order::{Pending, Point};
use crate::vocabulary::sizes::SEGMENTS;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Segment {
    bytes: u64,
    pending: Pending,
}

/// The segments of a run, in the order of their addresses. Positions are bytes from the run's
/// begin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Segments(SmallVec<[Segment; 1]>);

impl Segments {
    pub(crate) fn one(bytes: u64, pending: Pending) -> Self {
        Self(smallvec![Segment { bytes, pending }])
    }

    /// All their bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|segment| segment.bytes).sum()
    }

    /// Adds segments behind the last one.
    pub(super) fn append(&mut self, others: Self) {
        others.0.into_iter().for_each(|segment| self.push(segment));
        while self.0.len() > SEGMENTS {
            self.merge_shortest();
        }
    }

    /// Adds segments before the first one.
    pub(super) fn prepend(&mut self, mut others: Self) {
        std::mem::swap(self, &mut others);
        self.append(others);
    }

    fn push(&mut self, segment: Segment) {
        match self.0.last_mut().filter(|last| last.pending == segment.pending) {
            Some(last) => last.bytes += segment.bytes,
            None => self.0.push(segment),
        }
    }

    fn merge_shortest(&mut self) {
        let together = |index: &usize| self.0[*index].bytes + self.0[index + 1].bytes;
        let Some(index) = (0..self.0.len() - 1).min_by_key(together) else { return };
        let second = self.0.remove(index + 1);
        let first = &mut self.0[index];
        first.bytes += second.bytes;
        first.pending.join(&second.pending);
        first.pending.blur();
        self.merge_equal();
    }

    fn merge_equal(&mut self) {
        self.0.dedup_by(|second, first| {
            let equal = first.pending == second.pending;
            first.bytes += if equal { second.bytes } else { 0 };
            equal
        });
    }

    /// The segments in `range`.
    pub(super) fn slice(&self, range: Range<u64>) -> Self {
        if let [only] = &self.0[..] {
            return Self::one(range.end - range.start, only.pending.clone());
        }
        let parts = self
            .over(range)
            .map(|(part, pending)| Segment { bytes: part.end - part.start, pending: pending.clone() });
        Self(parts.collect())
    }

    /// Each segment that `range` touches: the touched part, and the points that it waits for.
    fn over(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, &Pending)> {
        let mut end = 0;
        let parts = self.0.iter().map(move |segment| {
            let begin = end;
            end += segment.bytes;
            (begin.max(range.start)..end.min(range.end), &segment.pending)
        });
        parts.filter(|(part, _)| part.start < part.end)
    }

    /// All points that bytes of `range` wait for.
    pub(crate) fn pending_over(&self, range: Range<u64>) -> Pending {
        let mut whole = Pending::default();
        self.over(range).for_each(|(_, pending)| whole.join(pending));
        whole
    }

    /// All points that any byte waits for.
    pub(crate) fn pending(&self) -> Pending {
        match &self.0[..] {
            [only] => only.pending.clone(),
            _ => self.pending_over(0..u64::MAX),
        }
    }

    /// Is all of `range` usable?
    pub(crate) fn is_usable(&self, range: Range<u64>, usable: impl Fn(&Pending) -> bool) -> bool {
        self.over(range).all(|(_, pending)| usable(pending))
    }

    /// The first usable range of at least `bytes`, at its full length.
    pub(crate) fn usable(&self, bytes: u64, usable: impl Fn(&Pending) -> bool) -> Option<Range<u64>> {
        let (mut begin, mut end) = (0, 0);
        for segment in &self.0 {
            let is_usable = usable(&segment.pending);
            if !is_usable && begin < end && end - begin >= bytes {
                return Some(begin..end);
            }
            end += segment.bytes;
            if !is_usable {
                begin = end;
            }
        }
        (begin < end && end - begin >= bytes).then_some(begin..end)
    }

    /// Drops points that are past.
    pub(super) fn forget(&mut self, is_past: impl Fn(&Point) -> bool) {
        self.0.iter_mut().for_each(|segment| segment.pending.retain(|point| !is_past(point)));
        self.merge_equal();
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a range that a stream may still be using is reported as usable, or a usable one is
    //! not found.
    use proptest::prelude::*;
    use wm_driver::StreamId;

    use super::*;
    use crate::vocabulary::order::Order;

    fn at(stream: u64) -> Pending {
        if stream == 0 { Pending::default() } else { Pending::at((Order::Stream(StreamId(stream)), 1)) }
    }

    fn built(row: &[(u64, u64)]) -> Segments {
        let mut segments = Segments::one(row[0].0, at(row[0].1));
        row[1..].iter().for_each(|(bytes, stream)| segments.append(Segments::one(*bytes, at(*stream))));
        segments
    }

    fn only(stream: u64) -> impl Fn(&Pending) -> bool {
        move |pending| pending.points().iter().all(|(order, _)| *order == Order::Stream(StreamId(stream)))
    }

    proptest! {
        /// Against a row of single bytes, each with the set of streams that may be using it.
        #[test]
        fn what_is_usable_is_what_every_byte_allows(
            row in prop::collection::vec((1..5u64, 0..4u64), 1..7),
            bytes in 1..8u64,
            cut in (0..30u64, 0..30u64),
        ) {
            let segments = built(&row);
            let each: Vec<u64> =
                row.iter().flat_map(|(bytes, stream)| std::iter::repeat_n(*stream, *bytes as usize)).collect();
            let free = |stream: &u64| *stream == 0 || *stream == 1;
            let mut ranges: Vec<Range<u64>> = Vec::new();
            for (position, _) in each.iter().enumerate().filter(|(_, stream)| free(stream)) {
                let position = position as u64;
                match ranges.last_mut().filter(|last| last.end == position) {
                    Some(last) => last.end += 1,
                    None => ranges.push(position..position + 1),
                }
            }
            let expected = ranges.iter().find(|range| range.end - range.start >= bytes).cloned();
            prop_assert_eq!(segments.usable(bytes, only(1)), expected);
            let (from, to) = (cut.0.min(each.len() as u64), cut.1.min(each.len() as u64));
            if from < to {
                let slice = segments.slice(from..to);
                let all = each[from as usize..to as usize].iter().all(free);
                prop_assert_eq!(slice.is_usable(0..to - from, only(1)), all);
                prop_assert_eq!(slice.pending(), segments.pending_over(from..to));
            }
        }

        /// Beyond the limit, a merged segment waits for more points than necessary and never for
        /// fewer.
        #[test]
        fn many_segments_are_usable_late_and_never_early(row in prop::collection::vec((1..5u64, 0..4u64), 1..60)) {
            let segments = built(&row);
            prop_assert!(segments.0.len() <= SEGMENTS);
            prop_assert_eq!(segments.0.iter().map(|segment| segment.bytes).sum::<u64>(), row.iter().map(|r| r.0).sum::<u64>());
            let mut begin = 0;
            for (bytes, stream) in row {
                let told = segments.pending_over(begin..begin + bytes);
                prop_assert!(at(stream).points().iter().all(|point| told.points().contains(point)));
                begin += bytes;
            }
        }
    }
}
