//! Which blocks may be shared, from the effects of their launches between fingerprints.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::graphs::GraphFacts;
use super::tracked_blocks::{BlockFacts, Exclusion, UseTime};
use crate::chunk::{CHUNK_BYTES, Fingerprint};
use crate::readers::{Lessons, ParameterKey, Readers, WindowOutcome};

/// The time from a block's last copy or write until it is fingerprinted.
const QUIET: Duration = Duration::from_millis(300);

/// The time until a block is shared that no kernel has used. Its first reader is unknown, and could
/// force a private copy.
const UNUSED: Duration = Duration::from_secs(30);

/// More launches of a graph between two fingerprints prove no more.
const MOST_LAUNCHES: u64 = 1 << 12;

/// May a block's chunks be shared?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eligibility {
    /// Yes.
    Eligible,
    /// No, and never again.
    Excluded(Exclusion),
    /// No kernel has used it for less than half a minute.
    UnknownReader,
    /// Its bytes were not the same in two fingerprints in a row since the last write.
    Changing,
    /// A kernel without a key was launched on it since its fingerprints.
    UnknownKernel,
    /// A kernel that uses it is not known to be a reader.
    PossibleWriter,
}

impl BlockFacts {
    /// May its chunks be shared, by the facts of now?
    pub fn eligibility(&self, now: Instant, readers: &Readers) -> Eligibility {
        let is_used = !self.parameters.is_empty() || self.quiet_for(now) >= UNUSED;
        match self.exclusion() {
            Some(why) => Eligibility::Excluded(why),
            None if !is_used => Eligibility::UnknownReader,
            None if self.unchanged == 0 => Eligibility::Changing,
            None if self.window.is_unknown() => Eligibility::UnknownKernel,
            None if !readers.judge(self.parameters.iter()) => Eligibility::PossibleWriter,
            None => Eligibility::Eligible,
        }
    }

    /// Is the block eligible, and is this a chunk's last fingerprint?
    pub fn may_share(&self, index: u64, name: Fingerprint, now: Instant, readers: &Readers) -> bool {
        self.fingerprints.get(&index) == Some(&name)
            && self.eligibility(now, readers) == Eligibility::Eligible
    }

    /// The chunks that need fingerprints now. A block needs them after a pause without writes,
    /// unless they could teach nothing: its bytes were unchanged, and its kernels are readers or
    /// none was launched.
    pub fn due_chunks(&self, now: Instant, readers: &Readers, graph_launches: u64) -> Vec<u64> {
        let is_quiet = self.exclusion().is_none() && self.quiet_for(now) >= QUIET;
        let is_idle = self.window.is_empty() && self.graph_launches == graph_launches;
        let is_settled = self.unchanged > 0 && is_idle || self.is_settled(readers);
        if is_quiet && !is_settled { self.candidates.chunks().collect() } else { Vec::new() }
    }

    /// Do fingerprints teach nothing more about the launches on the block?
    pub fn is_settled(&self, readers: &Readers) -> bool {
        self.unchanged > 0 && readers.judge(self.parameters.iter())
    }

    fn quiet_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.written_at)
    }

    /// New fingerprints of the block, which lies in `range`: credits or blames the launches since
    /// the last ones.
    pub fn learn(
        &mut self,
        range: &Range<u64>,
        fingerprints: BTreeMap<u64, Fingerprint>,
        readers: &Readers,
        graphs: &GraphFacts,
    ) -> Lessons {
        let graph_launches = graphs.launches();
        let reaching = graphs.reaching(range);
        let ran = graphs.ran_since(range, &mut self.graphs_seen);
        reaching.iter().for_each(|parameter| self.used_by(*parameter, UseTime::InGraph));
        let outcome = self.outcome(&fingerprints);
        match outcome {
            // Any graph may have written.
            WindowOutcome::Changed if graph_launches != self.graph_launches => {
                for parameter in reaching {
                    self.window.add(parameter);
                }
            }
            WindowOutcome::Unchanged => self.credit_graphs(ran),
            _ => {}
        }
        let lessons = readers.close(&self.window, outcome);
        if outcome == WindowOutcome::Changed {
            self.drop_changed(&fingerprints);
        }
        self.unchanged = if outcome == WindowOutcome::Unchanged { self.unchanged + 1 } else { 0 };
        self.window.clear();
        self.graph_launches = graph_launches;
        self.fingerprints = fingerprints;
        lessons
    }

    fn outcome(&self, new: &BTreeMap<u64, Fingerprint>) -> WindowOutcome {
        if self.fingerprints.is_empty() {
            WindowOutcome::Void
        } else if self.changed(new).next().is_none() {
            WindowOutcome::Unchanged
        } else {
            WindowOutcome::Changed
        }
    }

    fn changed(&self, new: &BTreeMap<u64, Fingerprint>) -> impl Iterator<Item = u64> {
        let differs = |index: &u64, before: &Fingerprint| new.get(index).is_some_and(|now| now != before);
        let changed = self.fingerprints.iter().filter(move |(index, before)| differs(index, before));
        changed.map(|(index, _)| *index)
    }

    fn credit_graphs(&mut self, ran: Vec<(ParameterKey, u64)>) {
        for (parameter, launches) in ran {
            for _ in 0..launches.min(MOST_LAUNCHES) {
                self.window.add(parameter);
            }
        }
    }

    /// A kernel wrote these chunks: they did not arrive by copies any more.
    fn drop_changed(&mut self, new: &BTreeMap<u64, Fingerprint>) {
        let changed: Vec<u64> = self.changed(new).collect();
        self.wait_no_longer(|index| changed.contains(&index));
        for index in changed {
            self.candidates.written(index * CHUNK_BYTES..(index + 1) * CHUNK_BYTES);
        }
    }

    /// Does the block rely on a parameter that is no reader any more?
    pub fn relies_on(&self, reversed: &[ParameterKey]) -> bool {
        reversed.iter().any(|parameter| self.parameters.contains(parameter))
    }
}

#[cfg(test)]
mod tests;
