//! The messages from workers to the process that reports.

use crate::judge::{Spent, Verdict};
use crate::program::Program;

/// A worker's message.
#[derive(Debug)]
pub(crate) enum Told {
    Judged(Program, Verdict),
    Spent(Spent),
    Failed(Failed),
    /// A step of this seed exceeded the limit once: it did not again, or there was no time to
    /// repeat it.
    Slow(u64),
}

/// A program that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    /// The program, and the programs that must run before it in the same process.
    pub(crate) case: Vec<Program>,
    pub(crate) verdict: Verdict,
    /// Did it fail again? `None` if there was no time to repeat it.
    pub(crate) repeats: Option<bool>,
}
