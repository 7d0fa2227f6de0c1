//! Kernel parameters that are only read through: proven for each function and parameter by the
//! function's code, and refuted by bytes that changed.
//!
//! No number of launches is a proof: a kernel may write the bytes that are there, or write only in
//! a phase that has not come. So a parameter without a proof may write. A proof may be wrong, if
//! the code was misunderstood or other code writes through an address in memory. Therefore the
//! bytes have a veto: if they changed in a block that only readers use, all of these are writers.
//!
//! Invariants: a writer stays one; a reader was proven, and no byte changed since in a block that
//! only readers use, it among them. No lock is held between calls.

mod key;

use dashmap::DashMap;
use rustc_hash::{FxBuildHasher, FxHashSet};

pub use key::{FunctionKey, ParameterKey, ParameterVerdict};

/// Parameters that are remembered. Others stay unknown, which is safe.
const MOST: usize = 1 << 18;

/// How many parameters there are by verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerdictCounts {
    /// Only read.
    pub readers: u64,
    /// May write.
    pub writers: u64,
    /// Code that was not judged yet.
    pub unknown: u64,
}

/// The knowledge about one parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knowledge {
    Unjudged,
    Reader,
    Writer,
}

/// All verdicts of a process.
#[derive(Debug, Default)]
pub struct Readers {
    known: DashMap<ParameterKey, Knowledge, FxBuildHasher>,
}

impl Readers {
    /// Without verdicts.
    pub fn new() -> Self {
        Self::default()
    }

    /// The verdict about a parameter.
    pub fn verdict(&self, parameter: ParameterKey) -> ParameterVerdict {
        match self.known.get(&parameter).as_deref() {
            None | Some(Knowledge::Unjudged) => ParameterVerdict::Unknown,
            Some(Knowledge::Reader) => ParameterVerdict::Reader,
            Some(Knowledge::Writer) => ParameterVerdict::Writer,
        }
    }

    /// Are all of them readers?
    pub fn judge<'a>(&self, parameters: impl IntoIterator<Item = &'a ParameterKey>) -> bool {
        parameters.into_iter().all(|parameter| self.verdict(*parameter) == ParameterVerdict::Reader)
    }

    /// Those of the parameters that have no verdict. They count as unknown from now on.
    pub fn unjudged<'a>(&self, parameters: impl IntoIterator<Item = &'a ParameterKey>) -> Vec<ParameterKey> {
        let is_open = |parameter: &ParameterKey| {
            !self.is_full(*parameter)
                && *self.known.entry(*parameter).or_insert(Knowledge::Unjudged) == Knowledge::Unjudged
        };
        parameters.into_iter().copied().filter(is_open).collect()
    }

    /// The function's code says whether it only reads through the parameter, and whether its
    /// address goes nowhere else. A writer stays one.
    pub fn prove(&self, parameter: ParameterKey, only_reads: bool) {
        if self.is_full(parameter) {
            return;
        }
        let mut known = self.known.entry(parameter).or_insert(Knowledge::Unjudged);
        if *known == Knowledge::Unjudged {
            *known = if only_reads { Knowledge::Reader } else { Knowledge::Writer };
        }
    }

    /// Bytes changed in a block into which these point. If all are readers, a proof is wrong, and
    /// [all are accused](Self::accuse); any other parameter explains the change. Returns the new
    /// writers.
    pub fn contradict(&self, parameters: &FxHashSet<ParameterKey>) -> Vec<ParameterKey> {
        if self.judge(parameters) { self.accuse(parameters.iter().copied()) } else { Vec::new() }
    }

    /// One of these wrote, against its proof, or another process says so: all of them count as
    /// writers, since it is unknown which one it was. Returns those that were none before.
    pub fn accuse(&self, parameters: impl IntoIterator<Item = ParameterKey>) -> Vec<ParameterKey> {
        let is_new = |parameter: &ParameterKey| {
            !self.is_full(*parameter)
                && self.known.insert(*parameter, Knowledge::Writer) != Some(Knowledge::Writer)
        };
        parameters.into_iter().filter(is_new).collect()
    }

    /// How many of each there are.
    pub fn counts(&self) -> VerdictCounts {
        let mut counts = VerdictCounts::default();
        for entry in &self.known {
            match entry.value() {
                Knowledge::Unjudged => counts.unknown += 1,
                Knowledge::Reader => counts.readers += 1,
                Knowledge::Writer => counts.writers += 1,
            }
        }
        counts
    }

    /// Is there no room for a new one? A full table never gets a new parameter, so no writer
    /// is forgotten and then proven.
    fn is_full(&self, parameter: ParameterKey) -> bool {
        !self.known.contains_key(&parameter) && self.known.len() >= MOST
    }
}

#[cfg(test)]
mod tests;
