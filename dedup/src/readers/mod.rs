//! Kernel parameters that are only read through: learned per function and parameter, from blocks
//! whose bytes did not change while it was launched.
//!
//! A block's launches are noted in a [`LaunchWindow`] between two fingerprints of all its chunks.
//! It is unknown which of several launches changed a byte, so each of them is taken for the writer.
//! A launch that changed no byte is no proof either: it may have written the bytes that were there.
//! A wrong verdict may therefore cost no more than a fault or a private copy.
//!
//! Invariants: a writer stays one; a reader had at least `proof` launches in unchanged windows, or
//! another process says so, and no launch in a changed one since. No lock is held between calls.

mod key;
mod window;

use dashmap::DashMap;
use rustc_hash::FxBuildHasher;

pub use key::{FunctionKey, ParameterKey, ParameterVerdict};
pub use window::LaunchWindow;

/// Launches without a change that make a reader, unless the user says otherwise.
pub const DEFAULT_PROOF: u32 = 64;

/// Parameters that are remembered. Others stay unknown, which is safe.
const MOST: usize = 1 << 18;

/// The effect of a window on a block's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowOutcome {
    /// All fingerprints are the same.
    Unchanged,
    /// A fingerprint differs, and only the window's kernels can have written.
    Changed,
    /// Other writes are possible: the window teaches nothing.
    Void,
}

/// The new verdicts from a window or another process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lessons {
    /// Became readers.
    pub readers: Vec<ParameterKey>,
    /// Became writers.
    pub writers: Vec<ParameterKey>,
    /// Were alone in their window, so that no other kernel can have written. Each is told once.
    pub certain: Vec<ParameterKey>,
    /// The writers that were readers: blocks that are shared because of them become private.
    pub reversed: Vec<ParameterKey>,
}

/// How many parameters there are by verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VerdictCounts {
    /// Only read.
    pub readers: u64,
    /// May write.
    pub writers: u64,
    /// Were launched, but not often enough.
    pub unknown: u64,
}

/// The knowledge about one parameter: its launches in unchanged windows, or a verdict.
#[derive(Debug, Clone, Copy)]
enum Knowledge {
    Launched(u32),
    Reader,
    Writer {
        /// No other kernel can have written.
        is_certain: bool,
    },
}

/// All verdicts of a process.
#[derive(Debug)]
pub struct Readers {
    proof: u32,
    known: DashMap<ParameterKey, Knowledge, FxBuildHasher>,
}

impl Readers {
    /// Without verdicts; `proof` launches without a change make a reader, at least one.
    pub fn new(proof: u32) -> Self {
        Self { proof: proof.max(1), known: DashMap::default() }
    }

    /// The verdict about a parameter.
    pub fn verdict(&self, parameter: ParameterKey) -> ParameterVerdict {
        match self.known.get(&parameter).as_deref() {
            None | Some(Knowledge::Launched(_)) => ParameterVerdict::Unknown,
            Some(Knowledge::Reader) => ParameterVerdict::Reader,
            Some(Knowledge::Writer { .. }) => ParameterVerdict::Writer,
        }
    }

    /// Are all of them readers?
    pub fn judge<'a>(&self, parameters: impl IntoIterator<Item = &'a ParameterKey>) -> bool {
        parameters.into_iter().all(|parameter| self.verdict(*parameter) == ParameterVerdict::Reader)
    }

    /// Ends a window: its launches are credited, or blamed. A window with unknown functions is void
    /// with any `outcome`.
    pub fn close(&self, window: &LaunchWindow, outcome: WindowOutcome) -> Lessons {
        let mut lessons = Lessons::default();
        let outcome = if window.is_unknown() { WindowOutcome::Void } else { outcome };
        let is_certain = window.launches().take(2).count() == 1;
        for (parameter, launches) in window.launches() {
            match outcome {
                WindowOutcome::Unchanged => self.credit(parameter, launches, &mut lessons),
                WindowOutcome::Changed => self.blame(parameter, is_certain, &mut lessons),
                WindowOutcome::Void => {}
            }
        }
        lessons
    }

    /// Takes over another process's verdicts. This process's writers stay writers.
    pub fn believe(&self, verdicts: impl IntoIterator<Item = (ParameterKey, ParameterVerdict)>) -> Lessons {
        let mut lessons = Lessons::default();
        for (parameter, verdict) in verdicts {
            match verdict {
                ParameterVerdict::Unknown => {}
                ParameterVerdict::Reader => self.credit(parameter, self.proof, &mut lessons),
                ParameterVerdict::Writer => self.blame(parameter, true, &mut lessons),
            }
        }
        lessons
    }

    /// A kernel faulted that may have written through one of these: all of them count as writers,
    /// for all processes. Which one it was is unknown.
    pub fn accuse(&self, parameters: impl IntoIterator<Item = ParameterKey>) -> Lessons {
        let mut lessons = Lessons::default();
        parameters.into_iter().for_each(|parameter| self.blame(parameter, true, &mut lessons));
        lessons
    }

    /// How many of each there are.
    pub fn counts(&self) -> VerdictCounts {
        let mut counts = VerdictCounts::default();
        for entry in &self.known {
            match entry.value() {
                Knowledge::Launched(_) => counts.unknown += 1,
                Knowledge::Reader => counts.readers += 1,
                Knowledge::Writer { .. } => counts.writers += 1,
            }
        }
        counts
    }

    fn credit(&self, parameter: ParameterKey, launches: u32, lessons: &mut Lessons) {
        if self.is_full(parameter) {
            return;
        }
        let mut knowledge = self.known.entry(parameter).or_insert(Knowledge::Launched(0));
        let Knowledge::Launched(before) = *knowledge else { return };
        let launched = before.saturating_add(launches);
        *knowledge = Knowledge::Launched(launched);
        if launched >= self.proof {
            *knowledge = Knowledge::Reader;
            lessons.readers.push(parameter);
        }
    }

    fn blame(&self, parameter: ParameterKey, is_certain: bool, lessons: &mut Lessons) {
        if self.is_full(parameter) {
            return;
        }
        let mut known = self.known.entry(parameter).or_insert(Knowledge::Launched(0));
        let before = *known;
        let was_certain = matches!(before, Knowledge::Writer { is_certain: true });
        *known = Knowledge::Writer { is_certain: is_certain || was_certain };
        drop(known);
        if is_certain && !was_certain {
            lessons.certain.push(parameter);
        }
        if matches!(before, Knowledge::Writer { .. }) {
            return;
        }
        if matches!(before, Knowledge::Reader) {
            lessons.reversed.push(parameter);
        }
        lessons.writers.push(parameter);
    }

    /// Is there no room for a new one? A full table never gets a new parameter, so no writer
    /// is forgotten and then credited.
    fn is_full(&self, parameter: ParameterKey) -> bool {
        !self.known.contains_key(&parameter) && self.known.len() >= MOST
    }
}

#[cfg(test)]
mod tests;
