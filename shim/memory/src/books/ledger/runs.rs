//! Free runs: maximal ranges of addresses that are backed by active handles and that no block uses.
//!
//! A run lies in one extent and on one tier; touching runs of the same extent and tier are one.
//! Each part of a run keeps the points that it waits for: see [`Segments`]. Runs are found by
//! address (to coalesce) and by size (for best fit), late ones last.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use wm_driver::Tier;

use super::run::{LateFilter, Run};
use super::segments::Segments;
use super::size_index::SizeIndex;
use crate::vocabulary::order::Point;
use crate::vocabulary::sizes::Class;

#[derive(Debug, Default)]
pub(crate) struct Runs {
    by_end: BTreeMap<u64, Run>,
    by_size: SizeIndex,
}

impl Runs {
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, &Run)> {
        self.by_end.iter().map(|(end, run)| (end - run.bytes, run))
    }

    /// The run that `address` is in.
    pub(crate) fn at(&self, address: u64) -> Option<(u64, &Run)> {
        let (end, run) = self.by_end.range(address + 1..).next()?;
        let start = end - run.bytes;
        (start <= address).then_some((start, run))
    }

    /// Parts of a range that runs cover, and the runs.
    pub(super) fn within(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, &Run)> {
        let begun = self.by_end.range(range.start + 1..).map(|(end, run)| (end - run.bytes..*end, run));
        let begun = begun.take_while(move |(whole, _)| whole.start < range.end);
        begun.map(move |(whole, run)| (whole.start.max(range.start)..whole.end.min(range.end), run))
    }

    fn named(&self, end: u64) -> Option<(u64, &Run)> {
        self.by_end.get(&end).map(|run| (end - run.bytes, run))
    }

    /// Runs of at least `bytes` that the filter accepts: early ones before late ones, the best fit
    /// first.
    pub(crate) fn fitting(
        &self,
        class: Class,
        tier: Tier,
        bytes: u64,
        filter: &LateFilter,
    ) -> impl Iterator<Item = (u64, &Run)> {
        self.by_size.fitting(class, tier, bytes, filter).filter_map(|end| self.named(end))
    }

    pub(crate) fn largest(&self) -> u64 {
        self.by_end.values().map(|run| run.bytes).max().unwrap_or(0)
    }

    /// Drops points that are past: destroyed streams would pile up in long-lived runs.
    pub(crate) fn forget(&mut self, is_past: impl Fn(&Point) -> bool) {
        self.by_end.values_mut().for_each(|run| run.segments.forget(&is_past));
    }

    fn insert(&mut self, end: u64, run: Run) {
        self.by_size.insert(end, &run);
        self.by_end.insert(end, run);
    }

    /// Adds a run and joins it to its neighbours within `extent`.
    pub(crate) fn give(&mut self, address: u64, run: Run, extent: &Range<u64>) {
        let (end, mut whole) = (address + run.bytes, run);
        if address > extent.start {
            self.absorb(&mut whole, address);
        }
        let after = self.by_end.range_mut(end + 1..=extent.end.max(end + 1)).next();
        match after.filter(|(at, run)| *at - run.bytes == end && run.tier == whole.tier) {
            Some((at, after)) if end < extent.end => {
                after.segments.prepend(whole.segments);
                self.by_size.resize(*at, after, after.bytes + whole.bytes);
            }
            _ => self.insert(end, whole),
        }
    }

    /// Adds the run that ends at `end` to `whole`, if it is on the same tier.
    fn absorb(&mut self, whole: &mut Run, end: u64) {
        let Entry::Occupied(before) = self.by_end.entry(end) else { return };
        if before.get().tier == whole.tier {
            let run = before.remove();
            self.by_size.remove(end, &run);
            whole.bytes += run.bytes;
            whole.segments.prepend(run.segments);
        }
    }

    /// Takes a range out of the runs that cover it. These may be several where tiers meet, all in
    /// the extent that ends at `limit`. Returns the points that its bytes wait for.
    pub(crate) fn claim(&mut self, address: u64, bytes: u64, limit: u64) -> Segments {
        let (mut next, end) = (address, address + bytes);
        let mut segments = Segments::default();
        while next < end {
            let Some(last) = self.cut(next, end, limit, &mut segments) else {
                debug_assert!(false, "no free run at {next:#x}");
                return segments;
            };
            next = last;
        }
        segments
    }

    /// Cuts `from..to` out of the run that `from` is in; returns where the run ended.
    fn cut(&mut self, from: u64, to: u64, limit: u64, segments: &mut Segments) -> Option<u64> {
        let (end, run) = self.by_end.range_mut(from + 1..=limit.max(to)).next()?;
        let end = *end;
        let before = from.checked_sub(end - run.bytes)?;
        let (length, taken) = (run.bytes, before..to.min(end) - (end - run.bytes));
        segments.append(run.segments.slice(taken.clone()));
        let head =
            (before > 0).then(|| Run { bytes: before, segments: run.segments.slice(0..before), ..*run });
        if end > to {
            run.segments = run.segments.slice(taken.end..length);
            self.by_size.resize(end, run, end - to);
        } else if let Some(run) = self.by_end.remove(&end) {
            self.by_size.remove(end, &run);
        }
        head.into_iter().for_each(|head| self.insert(from, head));
        Some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::super::run::{ALL, EARLY, LATE};
    use super::*;
    use crate::vocabulary::order::Pending;

    fn run(bytes: u64, tier: Tier) -> Run {
        Run::new(Some(Class::Large), tier, false, Segments::one(bytes, Pending::default()))
    }

    /// Addresses of the runs that hold 0x1800 bytes.
    fn fitting(runs: &Runs, filter: &LateFilter) -> Vec<u64> {
        runs.fitting(Class::Large, Tier::Device, 0x1800, filter).map(|(address, _)| address).collect()
    }

    fn shape(runs: &Runs) -> Vec<(u64, u64)> {
        runs.all().map(|(address, run)| (address, run.bytes)).collect()
    }

    #[test]
    fn neighbours_become_one_but_not_across_tiers_or_extents() {
        let mut runs = Runs::default();
        runs.give(0x1000, run(0x1000, Tier::Device), &(0x1000..0x5000));
        runs.give(0x3000, run(0x1000, Tier::Host), &(0x1000..0x5000));
        runs.give(0x5000, run(0x1000, Tier::Host), &(0x5000..0x6000));
        runs.give(0x2000, run(0x1000, Tier::Device), &(0x1000..0x5000));
        runs.give(0x4000, run(0x1000, Tier::Host), &(0x1000..0x5000));
        assert_eq!(shape(&runs), [(0x1000, 0x2000), (0x3000, 0x2000), (0x5000, 0x1000)]);
    }

    #[test]
    fn taking_leaves_both_ends_and_crosses_tiers() {
        let mut runs = Runs::default();
        runs.give(0x1000, run(0x2000, Tier::Device), &(0x1000..0x5000));
        runs.give(0x3000, run(0x2000, Tier::Host), &(0x1000..0x5000));
        runs.claim(0x2000, 0x2000, 0x5000);
        assert_eq!(shape(&runs), [(0x1000, 0x1000), (0x4000, 0x1000)]);
    }

    #[test]
    fn best_fit_is_the_smallest_run_that_holds_the_request() {
        let mut runs = Runs::default();
        for (address, bytes) in [(0x1_0000, 0x4000), (0x2_0000, 0x1000), (0x3_0000, 0x2000)] {
            runs.give(address, run(bytes, Tier::Device), &(address..address + bytes));
        }
        assert_eq!(fitting(&runs, &ALL), [0x3_0000, 0x1_0000]);
    }

    #[test]
    fn late_runs_come_last_however_well_they_fit() {
        let mut runs = Runs::default();
        for (address, bytes, late) in
            [(0x1_0000, 0x1800, true), (0x2_0000, 0x4000, false), (0x3_0000, 0x4000, true)]
        {
            runs.give(address, Run { late, ..run(bytes, Tier::Device) }, &(address..address + bytes));
        }
        runs.give(0x4_0000, Run { late: true, ..run(0x1000, Tier::Device) }, &(0x4_0000..0x4_1000));
        assert_eq!(fitting(&runs, &ALL), [0x2_0000, 0x1_0000, 0x3_0000]);
        assert_eq!(fitting(&runs, &EARLY), [0x2_0000]);
        assert_eq!(fitting(&runs, &LATE), [0x1_0000, 0x3_0000]);
    }
}
