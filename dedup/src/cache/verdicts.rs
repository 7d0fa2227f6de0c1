//! Verdicts of many processes, and how they are put together: as the join of a lattice, so that
//! neither order nor repetition matters.

use std::collections::BTreeMap;

use crate::readers::{Lessons, ParameterKey, ParameterVerdict};

/// The stored verdict about a parameter. The caller counts days from any fixed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptVerdict {
    /// Some process launched it so often without a change, and found so last on this day.
    Reader {
        /// The launches that were that process's proof.
        proof: u32,
        /// The last of such days.
        day: u32,
    },
    /// Some process saw a change.
    Writer {
        /// The last of such days.
        day: u32,
    },
}

impl KeptVerdict {
    /// A writer wins; of two readers the better proof and the later day.
    fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Writer { day }, Self::Writer { day: other }) => Self::Writer { day: day.max(other) },
            (Self::Writer { day }, _) | (_, Self::Writer { day }) => Self::Writer { day },
            (Self::Reader { proof, day }, Self::Reader { proof: other_proof, day: other_day }) => {
                Self::Reader { proof: proof.max(other_proof), day: day.max(other_day) }
            }
        }
    }

    /// The order in which verdicts are dropped: readers before writers, older before newer ones.
    fn worth(self) -> (bool, u32) {
        match self {
            Self::Reader { day, .. } => (false, day),
            Self::Writer { day } => (true, day),
        }
    }
}

/// Verdicts by parameter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdicts(BTreeMap<ParameterKey, KeptVerdict>);

impl Verdicts {
    /// The lessons of this process on a day, with its own proof. Only certain writers count: a
    /// kernel that was launched beside a writer is blamed in this process, and would otherwise stop
    /// sharing in every process of the user.
    pub fn learned(lessons: &Lessons, proof: u32, day: u32) -> Self {
        let mut verdicts = Self::default();
        lessons.readers.iter().for_each(|of| verdicts.insert(*of, KeptVerdict::Reader { proof, day }));
        lessons.certain.iter().for_each(|of| verdicts.insert(*of, KeptVerdict::Writer { day }));
        verdicts
    }

    /// Joins a verdict with the one that is stored for the parameter.
    pub fn insert(&mut self, parameter: ParameterKey, verdict: KeptVerdict) {
        self.0.entry(parameter).and_modify(|known| *known = known.join(verdict)).or_insert(verdict);
    }

    /// Adds all of another's.
    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(parameter, verdict)| self.insert(*parameter, *verdict));
    }

    /// The verdicts that a process with this proof believes: readers with as good a proof, and
    /// every writer.
    pub fn believed(&self, proof: u32) -> impl Iterator<Item = (ParameterKey, ParameterVerdict)> {
        self.0.iter().filter_map(move |(parameter, verdict)| match verdict {
            KeptVerdict::Reader { proof: had, .. } if *had < proof => None,
            KeptVerdict::Reader { .. } => Some((*parameter, ParameterVerdict::Reader)),
            KeptVerdict::Writer { .. } => Some((*parameter, ParameterVerdict::Writer)),
        })
    }

    /// Each parameter's verdict, ordered by parameter.
    pub fn iter(&self) -> impl Iterator<Item = (ParameterKey, KeptVerdict)> {
        self.0.iter().map(|(parameter, verdict)| (*parameter, *verdict))
    }

    /// Parameters.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Are there no verdicts?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops verdicts beyond `most`, oldest first, and writers only if no reader is left. A dropped
    /// parameter is unknown again, which costs a private copy or another proof.
    pub(super) fn trim(&mut self, most: usize) {
        let mut order: Vec<_> =
            self.iter().map(|(parameter, verdict)| (verdict.worth(), parameter)).collect();
        order.sort_unstable();
        let surplus = order.len().saturating_sub(most);
        for (_, parameter) in &order[..surplus] {
            self.0.remove(parameter);
        }
    }
}
