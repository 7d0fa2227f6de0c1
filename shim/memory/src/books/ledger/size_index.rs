//! Free runs by size: one ordered set for each class and tier. There are few of these, so the keys
//! stay short.

use std::collections::BTreeSet;

use wm_driver::Tier;

use super::run::{LateFilter, Run};
use crate::vocabulary::sizes::Class;

/// Is it late, its size, and where the run ends, which names it.
type RunKey = (bool, u64, u64);

#[derive(Debug)]
struct TierRuns {
    holds: (Option<Class>, Tier),
    places: BTreeSet<RunKey>,
}

#[derive(Debug, Default)]
pub(super) struct SizeIndex(Vec<TierRuns>);

fn place(end: u64, run: &Run) -> RunKey {
    (run.late, run.bytes, end)
}

impl SizeIndex {
    /// Runs of at least `bytes` that the filter accepts, early ones first, by size and address.
    pub(super) fn fitting(
        &self,
        class: Class,
        tier: Tier,
        bytes: u64,
        filter: &LateFilter,
    ) -> impl Iterator<Item = u64> + use<'_> {
        let bucket = self.0.iter().find(|bucket| bucket.holds == (Some(class), tier));
        let range = (*filter.start(), bytes, 0)..=(*filter.end(), u64::MAX, u64::MAX);
        let places = bucket.into_iter().flat_map(move |bucket| bucket.places.range(range.clone()));
        places.filter(move |place| place.1 >= bytes).map(|place| place.2)
    }

    fn places(&mut self, run: &Run) -> &mut BTreeSet<RunKey> {
        let holds = (run.class, run.tier);
        let known = self.0.iter().position(|bucket| bucket.holds == holds);
        let index = known.unwrap_or_else(|| {
            self.0.push(TierRuns { holds, places: BTreeSet::new() });
            self.0.len() - 1
        });
        &mut self.0[index].places
    }

    pub(super) fn insert(&mut self, end: u64, run: &Run) {
        self.places(run).insert(place(end, run));
    }

    pub(super) fn remove(&mut self, end: u64, run: &Run) {
        self.places(run).remove(&place(end, run));
    }

    /// Changes the size of a run whose end stays.
    pub(super) fn resize(&mut self, end: u64, run: &mut Run, bytes: u64) {
        let places = self.places(run);
        places.remove(&place(end, run));
        run.bytes = bytes;
        places.insert(place(end, run));
    }
}
