//! Writers that processes found against their proof, and how lists of them are put together: as
//! the join of a lattice, so that neither order nor repetition matters.

use std::collections::BTreeMap;

use crate::readers::ParameterKey;

/// Parameters, and the last day on which a process found each of them. The caller counts days from
/// any fixed one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownWriters(BTreeMap<ParameterKey, u32>);

impl KnownWriters {
    /// Found on a day.
    pub fn found(writers: &[ParameterKey], day: u32) -> Self {
        Self(writers.iter().map(|writer| (*writer, day)).collect())
    }

    /// Adds one, with the later of two days.
    pub fn insert(&mut self, parameter: ParameterKey, day: u32) {
        self.0.entry(parameter).and_modify(|known| *known = day.max(*known)).or_insert(day);
    }

    /// Adds all of another's.
    pub fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(parameter, day)| self.insert(parameter, day));
    }

    /// Each with its day, ordered by parameter.
    pub fn iter(&self) -> impl Iterator<Item = (ParameterKey, u32)> {
        self.0.iter().map(|(parameter, day)| (*parameter, *day))
    }

    /// Parameters.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops those beyond `most`, oldest first. A dropped one is judged by its code again.
    pub(super) fn trim(&mut self, most: usize) {
        let mut order: Vec<_> = self.iter().map(|(parameter, day)| (day, parameter)).collect();
        order.sort_unstable();
        let surplus = order.len().saturating_sub(most);
        for (_, parameter) in &order[..surplus] {
            self.0.remove(parameter);
        }
    }
}
