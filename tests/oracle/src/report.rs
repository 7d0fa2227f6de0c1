//! What was found, for people and for programs.

use std::time::Duration;

use serde_json::json;

use crate::Counts;
use crate::judge::Verdict;
use crate::program::{Action, Program};

/// Programs that were run, and those that failed.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) programs: u64,
    checked: u64,
    /// Calls that were refused on both sides, or for want of memory.
    refused: u64,
    /// Programs that the driver does not end either.
    pub(crate) open: u64,
    blocks: u64,
    steps: Counts,
    pub(crate) failed: Vec<Failed>,
}

/// A program that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    /// It, and what must run before it in the same process.
    case: Vec<Program>,
    verdict: Verdict,
    /// Does it fail each time?
    repeats: bool,
}

impl Found {
    /// Counts a program's steps.
    pub(crate) fn count(&mut self, program: &Program) {
        self.programs += 1;
        for step in &program.steps {
            *self.steps.entry(step.action.name()).or_default() += 1;
            self.blocks += u64::from(matches!(step.action, Action::Allocate { .. }));
        }
    }

    /// Counts a run without a fault.
    pub(crate) fn add(&mut self, checked: u64, refused: u64) {
        self.checked += checked;
        self.refused += refused;
    }

    /// Keeps a program that failed, and shows it.
    pub(crate) fn fail(&mut self, case: Vec<Program>, verdict: Verdict, repeats: bool) {
        let failed = Failed { case, verdict, repeats };
        eprintln!("{}", failed.told());
        self.failed.push(failed);
    }
}

impl Failed {
    fn side(&self) -> (&'static str, String) {
        match &self.verdict {
            Verdict::Bare(fault) => ("bare", fault.to_string()),
            Verdict::Library(fault) => ("under the library", fault.to_string()),
            Verdict::Right { .. } | Verdict::Open => ("nowhere", String::new()),
        }
    }

    fn told(&self) -> String {
        let (side, fault) = self.side();
        let repeats = if self.repeats { "" } else { ", but not again" };
        // More than a few are too many to be read.
        let hidden = self.case.len().saturating_sub(4);
        let before = if hidden == 0 { String::new() } else { format!("after {hidden} other programs:\n") };
        let shown = &self.case[hidden..];
        let programs: String = std::iter::once(before).chain(shown.iter().map(Program::to_string)).collect();
        format!("fails {side}{repeats}: {fault}\n{programs}")
    }
}

/// How far it is, on standard error.
pub(crate) fn progress(found: &Found, elapsed: Duration) {
    let (programs, mib, failed) = (found.programs, found.checked >> 20, found.failed.len());
    eprintln!("{:>6.0} s  {programs} programs, {mib} MiB checked, {failed} failed", elapsed.as_secs_f64());
}

/// All of it.
pub(crate) fn summary(found: &Found, as_json: bool) {
    if as_json {
        return println!("{}", document(found));
    }
    let steps: u64 = found.steps.values().sum();
    println!(
        "{} programs, {steps} steps, {} blocks, {} MiB checked, {} calls refused, {} left open, {} failed",
        found.programs,
        found.blocks,
        found.checked >> 20,
        found.refused,
        found.open,
        found.failed.len()
    );
    found.steps.iter().for_each(|(name, count)| println!("  {count:>8}  {name}"));
}

fn document(found: &Found) -> serde_json::Value {
    let failed = found.failed.iter().map(|failed| {
        let (side, fault) = failed.side();
        json!({
            "seed": failed.case.last().map(|program| program.seed), "side": side, "fault": fault,
            "repeats": failed.repeats, "programs": failed.case,
        })
    });
    json!({
        "programs": found.programs, "blocks": found.blocks, "checked_bytes": found.checked,
        "refused": found.refused, "open": found.open,
        "steps": found.steps, "failed": failed.collect::<Vec<_>>(),
    })
}
