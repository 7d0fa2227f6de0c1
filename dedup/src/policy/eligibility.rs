//! Which blocks may be shared, from the effects of their launches between fingerprints.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::graphs::GraphFacts;
use super::tracked_blocks::{BlockFacts, Exclusion};
use crate::chunk::{CHUNK_BYTES, Fingerprint};
use crate::readers::{ParameterKey, Readers};

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
    /// A kernel that uses it is not proven to be a reader.
    PossibleWriter,
}

impl BlockFacts {
    /// Why the block is not shared now, in words. `None`: it may be, or it holds too little that
    /// arrived by copies.
    pub fn obstacle(&self, now: Instant, readers: &Readers) -> Option<&'static str> {
        if self.exclusion().is_none() && !self.arrived_whole() {
            return self.candidates.chunks().next().map(|_| "a part of its memory did not arrive by copies");
        }
        match self.eligibility(now, readers) {
            Eligibility::Excluded(why) => Some(why.reason()),
            _ if self.candidates.chunks().next().is_none() => None,
            Eligibility::PossibleWriter => Some("a kernel may write it"),
            Eligibility::UnknownReader => Some("no kernel has used it yet"),
            Eligibility::Changing | Eligibility::Eligible => None,
        }
    }

    /// May its chunks be shared, by the facts of now?
    pub fn eligibility(&self, now: Instant, readers: &Readers) -> Eligibility {
        let is_used = !self.parameters.is_empty() || self.quiet_for(now) >= UNUSED;
        match self.exclusion() {
            Some(why) => Eligibility::Excluded(why),
            None if !is_used => Eligibility::UnknownReader,
            None if !readers.judge(self.parameters.iter()) => Eligibility::PossibleWriter,
            None if self.unchanged == 0 => Eligibility::Changing,
            None => Eligibility::Eligible,
        }
    }

    /// Is the block eligible, and is this a chunk's last fingerprint?
    pub fn may_share(&self, index: u64, name: Fingerprint, now: Instant, readers: &Readers) -> bool {
        self.name(index) == Some(name) && self.eligibility(now, readers) == Eligibility::Eligible
    }

    /// The chunks that need fingerprints now: after a pause without writes, in a block that could
    /// be shared by all else that is known.
    pub fn due_chunks(&self, now: Instant, readers: &Readers) -> Vec<u64> {
        let is_due = self.exclusion().is_none()
            && self.unchanged == 0
            && self.arrived_whole()
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
        // Those of graphs that are older than the block's bytes are new to it.
        for parameter in graphs.reaching(range) {
            self.used_by(parameter);
        }
        let has_changed = self.changed(&fingerprints).next().is_some();
        let refuted = if has_changed { readers.contradict(&self.parameters) } else { Vec::new() };
        if has_changed {
            self.drop_changed(&fingerprints);
        }
        let was_still = !has_changed && !self.fingerprints.is_empty();
        self.unchanged = if was_still { self.unchanged + 1 } else { 0 };
        self.fingerprints = fingerprints;
        refuted
    }

    /// A chunk has other bytes than its fingerprint says, and no known write is the cause. Returns
    /// the parameters whose proof this refutes.
    pub fn contradicted(&mut self, readers: &Readers) -> Vec<ParameterKey> {
        self.fingerprints.clear();
        self.wait_no_longer(|_| true);
        self.unchanged = 0;
        readers.contradict(&self.parameters)
    }

    fn changed(&self, new: &BTreeMap<u64, Fingerprint>) -> impl Iterator<Item = u64> {
        let differs = |index: &u64, before: &Fingerprint| new.get(index).is_some_and(|now| now != before);
        let changed = self.fingerprints.iter().filter(move |(index, before)| differs(index, before));
        changed.map(|(index, _)| *index)
    }

    /// A kernel wrote these chunks: they did not arrive by copies any more.
    fn drop_changed(&mut self, new: &BTreeMap<u64, Fingerprint>) {
        let changed: Vec<u64> = self.changed(new).collect();
        let first: Vec<u64> = changed.iter().map(|index| self.first_of(*index)).collect();
        self.wait_no_longer(|index| first.contains(&index));
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
