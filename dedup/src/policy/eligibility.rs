//! Which blocks may be shared, from the effects of their launches between fingerprints.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::graphs::GraphFacts;
use super::tracked_blocks::{BlockFacts, Exclusion, UseTime};
use crate::chunk::{CHUNK_BYTES, Fingerprint};
use crate::readers::{ParameterKey, Readers, WindowOutcome};

/// The time from a block's last copy or write until it is fingerprinted.
const QUIET: Duration = Duration::from_millis(300);

/// The time until a block is shared that no kernel has used. Its first reader is unknown, and could
/// force a private copy.
const UNUSED: Duration = Duration::from_secs(30);

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
    /// A kernel that uses it is not proven to be a reader.
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

    /// The chunks that need fingerprints now: after a pause without writes, in a block that could
    /// be shared by all else that is known.
    pub fn due_chunks(&self, now: Instant, readers: &Readers) -> Vec<u64> {
        let is_due = self.exclusion().is_none()
            && self.unchanged == 0
            && self.quiet_for(now) >= QUIET
            && readers.judge(self.parameters.iter());
        if is_due { self.candidates.chunks().collect() } else { Vec::new() }
    }

    /// Parameters into the block, any of which may write if it has no verdict.
    pub fn parameters(&self) -> impl Iterator<Item = &ParameterKey> {
        self.parameters.iter()
    }

    fn quiet_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.written_at)
    }

    /// New fingerprints of the block, which lies in `range`. Returns the parameters whose proof
    /// they refute.
    pub fn learn(
        &mut self,
        range: &Range<u64>,
        fingerprints: BTreeMap<u64, Fingerprint>,
        readers: &Readers,
        graphs: &GraphFacts,
    ) -> Vec<ParameterKey> {
        let reaching = graphs.reaching(range);
        for parameter in &reaching {
            self.used_by(*parameter, UseTime::InGraph);
        }
        let outcome = self.outcome(&fingerprints);
        if outcome == WindowOutcome::Changed {
            self.note_graphs(reaching, graphs.launches());
            self.drop_changed(&fingerprints);
        }
        let refuted = readers.close(&self.window, outcome);
        self.unchanged = if outcome == WindowOutcome::Unchanged { self.unchanged + 1 } else { 0 };
        self.window.clear();
        self.graph_launches = graphs.launches();
        self.fingerprints = fingerprints;
        refuted
    }

    /// A chunk has other bytes than its fingerprint says, and no known write is the cause. Returns
    /// the parameters whose proof this refutes.
    pub fn contradicted(
        &mut self,
        range: &Range<u64>,
        readers: &Readers,
        graphs: &GraphFacts,
    ) -> Vec<ParameterKey> {
        self.note_graphs(graphs.reaching(range), graphs.launches());
        let refuted = readers.close(&self.window, WindowOutcome::Changed);
        self.window.clear();
        self.fingerprints.clear();
        self.wait_no_longer(|_| true);
        self.unchanged = 0;
        refuted
    }

    /// Bytes changed: any graph that was launched since the last fingerprints may have written.
    fn note_graphs(&mut self, reaching: impl IntoIterator<Item = ParameterKey>, launches: u64) {
        if launches != self.graph_launches {
            for parameter in reaching {
                self.window.add(parameter);
            }
        }
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
