//! Kernel parameters that are only read through: learned per function and parameter, from blocks
//! whose bytes stayed what they were while it was launched.
//!
//! A block's launches are noted in a [`LaunchWindow`] between two fingerprints of all its chunks.
//! It is unknown which of several launches changed a byte, so each of them is taken for the writer.
//! The other way round a launch that changed nothing is no proof: it may have written what was
//! there. Verdicts are therefore only used where a wrong one costs a fault or a private copy.
//!
//! Invariants: a writer stays one; a reader had at least `proof` launches in unchanged windows, or
//! another process says so, and no launch in a changed one since. No lock is held between calls.

mod key;
mod window;

use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use rustc_hash::FxBuildHasher;

pub use key::{FunctionKey, ParameterKey, ParameterVerdict};
pub use window::LaunchWindow;

/// Launches without a change that make a reader, unless the user says otherwise.
pub const DEFAULT_PROOF: u32 = 64;

/// Parameters that are remembered. Others stay unknown, which is safe.
const MOST: usize = 1 << 18;

/// What became of a block's bytes in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowOutcome {
    /// All fingerprints are what they were.
    Unchanged,
    /// One is not, and only what is noted in the window can have written.
    Changed,
    /// Something else may have written, too: nothing is learned.
    Void,
}

/// What a window or another process taught.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lessons {
    /// Became readers.
    pub readers: Vec<ParameterKey>,
    /// Became writers.
    pub writers: Vec<ParameterKey>,
    /// Were alone in their window, so that nothing else can have written. Each is told once.
    pub certain: Vec<ParameterKey>,
    /// Of these, what was a reader: blocks that are shared because of them have to be made private.
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

/// What is known of one parameter. An unknown one is known by its launches in unchanged windows.
#[derive(Debug, Clone, Copy)]
enum Knowledge {
    Launched(u32),
    Reader,
    Writer {
        /// Nothing else can have written.
        is_certain: bool,
    },
}

/// All verdicts of a process.
#[derive(Debug)]
pub struct Readers {
    proof: u32,
    known: DashMap<ParameterKey, Knowledge, FxBuildHasher>,
    reversals: AtomicU64,
}

impl Readers {
    /// Nothing is known; `proof` launches without a change make a reader, at least one.
    pub fn new(proof: u32) -> Self {
        Self { proof: proof.max(1), known: DashMap::default(), reversals: AtomicU64::new(0) }
    }

    /// What is known of a parameter.
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

    /// How many readers turned out to be writers so far. While it stays the same, a
    /// [`judge`](Self::judge) that said yes would say so again.
    pub fn reversals(&self) -> u64 {
        self.reversals.load(Ordering::Acquire)
    }

    /// Ends a window: its launches are credited, or blamed. A window with unknown functions is void
    /// whatever `outcome` says.
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

    /// Takes over what another process found. What this one knows of a writer stays.
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

    /// Every reader and writer, in no order.
    pub fn verdicts(&self) -> Vec<(ParameterKey, ParameterVerdict)> {
        let verdict = |knowledge: &Knowledge| match knowledge {
            Knowledge::Launched(_) => None,
            Knowledge::Reader => Some(ParameterVerdict::Reader),
            Knowledge::Writer { .. } => Some(ParameterVerdict::Writer),
        };
        self.known.iter().filter_map(|entry| Some((*entry.key(), verdict(entry.value())?))).collect()
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
            self.reversals.fetch_add(1, Ordering::Release);
        }
        lessons.writers.push(parameter);
    }

    /// Is there no room for a new one? Once it is full nothing new is ever remembered, so no writer
    /// is forgotten and then credited.
    fn is_full(&self, parameter: ParameterKey) -> bool {
        !self.known.contains_key(&parameter) && self.known.len() >= MOST
    }
}

#[cfg(test)]
mod tests;
