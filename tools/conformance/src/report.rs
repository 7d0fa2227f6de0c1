//! The output of a run: a table for people, a document for programs.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::case::Outcome;
use crate::runner::Finished;

/// The document of one run. The version grows when a field changes its meaning.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Document {
    /// The form of this document: 1.
    pub version: u32,
    /// The driver library as it was named.
    pub driver: String,
    /// All cases, in the order of the table.
    pub cases: Vec<Finished>,
}

impl Document {
    /// The document as text, one case a line: version control then shows which cases changed.
    ///
    /// # Errors
    /// When a value cannot be written as JSON.
    pub fn text(&self) -> serde_json::Result<String> {
        let cases = self.cases.iter().map(serde_json::to_string).collect::<serde_json::Result<Vec<_>>>()?;
        let driver = serde_json::to_string(&self.driver)?;
        let Self { version, .. } = self;
        Ok(format!("{{\"version\":{version},\"driver\":{driver},\"cases\":[\n{}\n]}}\n", cases.join(",\n")))
    }

    /// Keeps only the parts that two machines share: no times, no messages, no answers about the
    /// machine.
    pub fn make_portable(&mut self) {
        for case in &mut self.cases {
            (case.milliseconds, case.stderr) = (0, String::new());
            case.record.calls.clear();
            case.record.observed.retain(|observation| !observation.machine);
        }
    }
}

/// One line of the table.
pub fn line(finished: &Finished) -> String {
    let outcome = match finished.record.outcome {
        Outcome::Ok => "ok",
        Outcome::Failed => "FAILED",
        Outcome::Skipped => "skipped",
    };
    let mut text = format!("{:<44} {:<8} {:>6} ms", finished.case, outcome, finished.milliseconds);
    for reason in &finished.record.reasons {
        let _ = write!(text, "\n    {reason}");
    }
    if finished.record.outcome == Outcome::Failed {
        for said in finished.stderr.lines() {
            let _ = write!(text, "\n    stderr: {said}");
        }
    }
    text
}

/// The last line of the table.
pub fn summary(cases: &[Finished]) -> String {
    let count = |outcome| cases.iter().filter(|case| case.record.outcome == outcome).count();
    let milliseconds: u64 = cases.iter().map(|case| case.milliseconds).sum();
    format!(
        "{} cases: {} ok, {} failed, {} skipped; {:.1} s",
        cases.len(),
        count(Outcome::Ok),
        count(Outcome::Failed),
        count(Outcome::Skipped),
        milliseconds as f64 / 1000.0
    )
}

/// Did any case fail?
pub fn any_failed(cases: &[Finished]) -> bool {
    cases.iter().any(|case| case.record.outcome == Outcome::Failed)
}
