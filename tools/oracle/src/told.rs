//! The messages from workers to the process that reports.

use crate::judge::{Spent, Verdict};
use crate::program::Program;

/// What a worker tells.
#[derive(Debug)]
pub(crate) enum Told {
    Judged(Program, Verdict),
    Spent(Spent),
    Failed(Failed),
    /// A step of this seed's took longer than the limit, once: it did not again, or there was no
    /// time to try.
    Slow(u64),
}

/// A program that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    /// It, and what must run before it in the same process.
    pub(crate) case: Vec<Program>,
    pub(crate) verdict: Verdict,
    /// Did it fail again? `None` if there was no time to try.
    pub(crate) repeats: Option<bool>,
}
