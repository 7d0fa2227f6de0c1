//! The statistics of sharing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use wm_schema::{DedupStats, Reason};

use super::sharing::Sharing;
use crate::settings::{self, Dedup};

impl Sharing {
    /// `None` if the setting is off.
    pub(crate) fn figures(&self) -> Option<DedupStats> {
        let mode = match settings::get()?.dedup {
            Dedup::Off => return None,
            Dedup::Advise => "advise",
            Dedup::Auto => "auto",
            Dedup::On => "on",
        };
        let verdicts = self.kernels.readers().counts();
        let count = |count: &AtomicU64| count.load(Relaxed);
        let mut stats = DedupStats {
            mode: mode.to_owned(),
            readers: verdicts.readers,
            writers: verdicts.writers,
            unknown: verdicts.unknown,
            copied_back_bytes: count(&self.counts.copied_back_bytes),
            faults_avoided: count(&self.counts.faults_avoided),
            launches: count(&self.counts.launches),
            turns: count(&self.counts.passes),
            ..DedupStats::default()
        };
        self.add_blocks(&mut stats);
        if settings::get()?.dedup == Dedup::Advise {
            let advice = self.counts.advice();
            (stats.shared_bytes, stats.saved_bytes) = (advice.duplicated, advice.saved);
        }
        Some(stats)
    }

    fn add_blocks(&self, stats: &mut DedupStats) {
        let mut refused: BTreeMap<&'static str, u64> = BTreeMap::new();
        self.status.end_reason().into_iter().for_each(|why| *refused.entry(why).or_default() += 1);
        for block in self.blocks.all() {
            let facts = block.facts();
            let usage = facts.usage();
            stats.candidate_bytes += usage.candidates;
            stats.shared_bytes += usage.shared;
            stats.saved_bytes += usage.saved;
            let obstacle = facts.obstacle(Instant::now(), self.kernels.readers());
            obstacle.into_iter().for_each(|why| *refused.entry(why).or_default() += 1);
        }
        let reasons = refused.into_iter();
        stats.refused = reasons.map(|(reason, count)| Reason { reason: reason.to_owned(), count }).collect();
    }
}
