//! Free runs: maximal stretches of addresses that are backed by active handles and that no block uses.
//!
//! A run lies in one extent and on one tier; touching runs of the same extent and tier are one. What a run waits for is
//! the union of what its parts waited for. Runs are found by address (to coalesce) and, within a rank, by size (for best fit).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use wm_driver::Tier;

use crate::order::{Pending, Point};
use crate::sizes::Class;

/// Ranks of free runs: those of a lower one are used first.
pub(crate) type Ranks = RangeInclusive<u64>;

/// Of memory that is not late.
pub(crate) const EARLY: Ranks = 0..=0;

/// Of late memory: the older the lower.
pub(crate) const LATE: Ranks = 1..=u64::MAX;

/// Of all memory.
pub(crate) const ALL: Ranks = 0..=u64::MAX;

/// One free run; its address is its key.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) bytes: u64,
    pub(crate) class: Class,
    pub(crate) tier: Tier,
    pub(crate) rank: u64,
    pub(crate) pending: Pending,
}

#[derive(Debug, Default)]
pub(crate) struct Runs {
    by_address: BTreeMap<u64, Run>,
    by_size: BTreeSet<(Class, Tier, u64, u64, u64)>,
}

impl Runs {
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, &Run)> {
        self.by_address.iter().map(|(address, run)| (*address, run))
    }

    /// The run that `address` is in.
    pub(crate) fn at(&self, address: u64) -> Option<(u64, &Run)> {
        let (start, run) = self.by_address.range(..=address).next_back()?;
        (address - start < run.bytes).then_some((*start, run))
    }

    /// Runs of at least `bytes`, the lowest rank first, and the best fit in it.
    pub(crate) fn fitting(
        &self,
        class: Class,
        tier: Tier,
        bytes: u64,
        ranks: &Ranks,
    ) -> impl Iterator<Item = (u64, &Run)> {
        let range = (class, tier, *ranks.start(), bytes, 0)..=(class, tier, *ranks.end(), u64::MAX, u64::MAX);
        let long = self.by_size.range(range).filter(move |key| key.3 >= bytes);
        long.filter_map(|key| Some((key.4, self.by_address.get(&key.4)?)))
    }

    /// All runs of a class on a tier, the longest first; after them late ones.
    pub(crate) fn longest_first(&self, class: Class, tier: Tier) -> impl Iterator<Item = (u64, &Run)> {
        let of = move |ranks: Ranks| {
            let range = (class, tier, *ranks.start(), 0, 0)..=(class, tier, *ranks.end(), u64::MAX, u64::MAX);
            self.by_size.range(range).rev()
        };
        of(EARLY).chain(of(LATE)).filter_map(|key| Some((key.4, self.by_address.get(&key.4)?)))
    }

    pub(crate) fn largest(&self) -> u64 {
        self.by_address.values().map(|run| run.bytes).max().unwrap_or(0)
    }

    /// Drops points that are past: destroyed streams would pile up in long-lived runs.
    pub(crate) fn forget(&mut self, is_past: impl Fn(&Point) -> bool) {
        self.by_address.values_mut().for_each(|run| run.pending.retain(|point| !is_past(point)));
    }

    fn insert(&mut self, address: u64, run: Run) {
        if run.bytes > 0 {
            self.by_size.insert((run.class, run.tier, run.rank, run.bytes, address));
            self.by_address.insert(address, run);
        }
    }

    fn remove(&mut self, address: u64) -> Option<Run> {
        let run = self.by_address.remove(&address)?;
        self.by_size.remove(&(run.class, run.tier, run.rank, run.bytes, address));
        Some(run)
    }

    /// Adds a run and joins it to its neighbours within `extent`.
    pub(crate) fn give(&mut self, address: u64, run: Run, extent: &Range<u64>) {
        let (mut start, mut whole) = (address, run);
        let before = self.by_address.range(extent.start..start).next_back();
        let touching = before.filter(|(at, run)| *at + run.bytes == start && run.tier == whole.tier);
        if let Some(at) = touching.map(|(at, _)| *at) {
            start = at;
            self.absorb(&mut whole, at);
        }
        let end = start + whole.bytes;
        if end < extent.end && self.by_address.get(&end).is_some_and(|run| run.tier == whole.tier) {
            self.absorb(&mut whole, end);
        }
        self.insert(start, whole);
    }

    fn absorb(&mut self, whole: &mut Run, neighbour: u64) {
        if let Some(run) = self.remove(neighbour) {
            whole.bytes += run.bytes;
            whole.pending.join(&run.pending);
        }
    }

    /// Takes a stretch out of the runs that cover it, which may be several where tiers meet. Returns what it waits for.
    pub(crate) fn take(&mut self, address: u64, bytes: u64) -> Pending {
        let (mut next, end) = (address, address + bytes);
        let mut pending = Pending::default();
        while next < end {
            let Some((start, _)) = self.at(next) else {
                debug_assert!(false, "no free run at {next:#x}");
                return pending;
            };
            next = self.cut(start, next, end, &mut pending);
        }
        pending
    }

    /// Cuts `from..to` out of the run at `start`; returns where the run ended.
    fn cut(&mut self, start: u64, from: u64, to: u64, pending: &mut Pending) -> u64 {
        let Some(run) = self.remove(start) else { return to };
        let end = start + run.bytes;
        pending.join(&run.pending);
        self.insert(start, Run { bytes: from - start, ..run.clone() });
        let tail = end.saturating_sub(to);
        self.insert(end - tail, Run { bytes: tail, ..run });
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(bytes: u64, tier: Tier) -> Run {
        Run { bytes, class: Class::Large, tier, rank: 0, pending: Pending::default() }
    }

    /// Addresses of the runs that hold 0x1800 bytes.
    fn fitting(runs: &Runs, ranks: &Ranks) -> Vec<u64> {
        runs.fitting(Class::Large, Tier::Device, 0x1800, ranks).map(|(address, _)| address).collect()
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
        runs.take(0x2000, 0x2000);
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
        for (address, bytes, rank) in [(0x1_0000, 0x1800, 9), (0x2_0000, 0x4000, 0), (0x3_0000, 0x4000, 5)] {
            runs.give(address, Run { rank, ..run(bytes, Tier::Device) }, &(address..address + bytes));
        }
        runs.give(0x4_0000, Run { rank: 5, ..run(0x1000, Tier::Device) }, &(0x4_0000..0x4_1000));
        assert_eq!(fitting(&runs, &ALL), [0x2_0000, 0x3_0000, 0x1_0000]);
        assert_eq!(fitting(&runs, &EARLY), [0x2_0000]);
        assert_eq!(fitting(&runs, &LATE), [0x3_0000, 0x1_0000]);
    }
}
