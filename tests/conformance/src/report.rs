//! What a run looks like: a table for people, a document for programs, and the comparison of two documents.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::case::{Observation, Outcome};
use crate::runner::Finished;

/// The document of one run. The version grows when a field changes its meaning.
#[derive(Debug, Serialize, Deserialize)]
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

    /// Leaves only what two machines share: no times, no messages, nothing that describes the machine.
    pub fn make_portable(&mut self) {
        for case in &mut self.cases {
            (case.milliseconds, case.stderr) = (0, String::new());
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

/// What to compare, and what to leave out.
#[derive(Debug, Clone, Copy)]
pub struct Comparison {
    /// Also compare what describes the machine: right for two runs on one machine.
    pub machine: bool,
}

/// One answer that differs.
#[derive(Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The case.
    pub case: String,
    /// What was asked.
    pub label: String,
    /// The first document's answer; none when it was not asked.
    pub first: Option<Value>,
    /// The second document's.
    pub second: Option<Value>,
}

/// The answers that differ between two runs. Cases that only one of them holds, or that one skipped, are left out.
pub fn compare(first: &Document, second: &Document, how: Comparison) -> Vec<Difference> {
    let others: BTreeMap<&str, &Finished> = second.cases.iter().map(|case| (&*case.case, case)).collect();
    let pairs = first.cases.iter().filter_map(|case| Some((case, *others.get(&*case.case)?)));
    pairs.filter(|(a, b)| both_ran(a, b)).flat_map(|(a, b)| differences(a, b, how)).collect()
}

fn both_ran(first: &Finished, second: &Finished) -> bool {
    first.record.outcome != Outcome::Skipped && second.record.outcome != Outcome::Skipped
}

fn differences(first: &Finished, second: &Finished, how: Comparison) -> Vec<Difference> {
    let (a, b) = (answers(&first.record.observed, how), answers(&second.record.observed, how));
    let mut labels: Vec<&String> = a.keys().chain(b.keys()).collect();
    labels.sort();
    labels.dedup();
    let differing = labels.into_iter().filter(|label| a.get(*label) != b.get(*label));
    let found = |label: &String| Difference {
        case: first.case.clone(),
        label: label.clone(),
        first: a.get(label).map(|value| (*value).clone()),
        second: b.get(label).map(|value| (*value).clone()),
    };
    differing.map(found).collect()
}

/// Answers by label; the second use of a label in one case gets a number.
fn answers(observed: &[Observation], how: Comparison) -> BTreeMap<String, &Value> {
    let mut answers = BTreeMap::new();
    for observation in observed.iter().filter(|observation| how.machine || !observation.machine) {
        let mut label = observation.label.clone();
        let mut uses = 1;
        while answers.contains_key(&label) {
            uses += 1;
            label = format!("{} ({uses})", observation.label);
        }
        answers.insert(label, &observation.value);
    }
    answers
}

/// The differences as a table.
pub fn comparison(differences: &[Difference]) -> String {
    let mut text = String::new();
    let show = |value: &Option<Value>| value.as_ref().map_or_else(|| "(not asked)".into(), Value::to_string);
    for difference in differences {
        let Difference { case, label, first, second } = difference;
        let _ = writeln!(text, "{case:<40} {label:<60} {} | {}", show(first), show(second));
    }
    let _ = write!(text, "{} answers differ", differences.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Record;

    fn document(answers: &[(&str, i32, bool)]) -> Document {
        let observation = |(label, value, machine): &(&str, i32, bool)| Observation {
            label: (*label).into(),
            value: (*value).into(),
            machine: *machine,
        };
        let observed = answers.iter().map(observation).collect();
        let record = Record { outcome: Outcome::Ok, reasons: vec![], observed };
        let case = Finished { case: "a.case".into(), record, milliseconds: 1, stderr: String::new() };
        Document { version: 1, driver: "d".into(), cases: vec![case] }
    }

    /// Hazard: a comparison that overlooks a changed, a missing or a repeated answer.
    #[test]
    fn every_kind_of_difference_is_found() {
        let first =
            document(&[("same", 1, false), ("changed", 1, false), ("twice", 1, false), ("twice", 2, false)]);
        let second =
            document(&[("same", 1, false), ("changed", 2, false), ("twice", 1, false), ("new", 5, false)]);
        let found = compare(&first, &second, Comparison { machine: false });
        let labels: Vec<&str> = found.iter().map(|difference| &*difference.label).collect();
        assert_eq!(labels, ["changed", "new", "twice (2)"]);
    }

    /// Hazard: a simulator blamed for not having the memory of a GPU.
    #[test]
    fn what_describes_the_machine_is_compared_on_request_only() {
        let (first, second) = (document(&[("bytes", 1, true)]), document(&[("bytes", 2, true)]));
        assert!(compare(&first, &second, Comparison { machine: false }).is_empty());
        assert_eq!(compare(&first, &second, Comparison { machine: true }).len(), 1);
    }
}
