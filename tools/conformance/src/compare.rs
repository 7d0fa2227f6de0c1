//! The comparison of two runs: one row for every answer that differs.
//!
//! Intended differences are listed in a file, each with its reason. A row of that file that no
//! longer differs is reported too, so that the list stays true.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::anyhow;
use serde::Serialize;
use serde_json::Value;

use crate::case::{Observation, Outcome};
use crate::report::Document;
use crate::runner::Finished;

/// The parts of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Comparison {
    /// Also compare answers that describe the machine: right for two runs on one machine.
    pub machine: bool,
}

/// One answer that differs.
#[derive(Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The case.
    pub case: String,
    /// The question.
    pub label: String,
    /// The first document's answer; none if the question is missing there.
    pub first: Option<Value>,
    /// The second document's.
    pub second: Option<Value>,
}

/// The answers that differ between two runs. Cases that are in only one of them, or that one
/// skipped, are left out.
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
pub fn table(differences: &[Difference]) -> String {
    let mut text = String::new();
    let show = |value: &Option<Value>| value.as_ref().map_or_else(|| "(not asked)".into(), Value::to_string);
    for difference in differences {
        let Difference { case, label, first, second } = difference;
        let _ = writeln!(text, "{case:<40} {label:<60} {} | {}", show(first), show(second));
    }
    let _ = write!(text, "{} answers differ", differences.len());
    text
}

/// Intended differences: a case, a label (`*` for all of the case), and the reason.
#[derive(Debug, Default)]
pub struct Accepted(Vec<[String; 3]>);

impl Accepted {
    /// Reads the list: three fields a line, separated by tabs. Lines that start with `#` are
    /// comments.
    ///
    /// # Errors
    /// The first line that has another number of fields.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let row = |line: &str| {
            let fields: Vec<String> = line.split('\t').map(str::to_owned).collect();
            fields.try_into().map_err(|_| anyhow!("not «case, label, reason» with tabs between: {line}"))
        };
        lines.map(row).collect::<Result<_, _>>().map(Self)
    }

    fn covers([case, label, _]: &[String; 3], difference: &Difference) -> bool {
        *case == difference.case && (label == "*" || *label == difference.label)
    }

    /// The differences that the list does not have.
    pub fn remove_from(&self, differences: Vec<Difference>) -> Vec<Difference> {
        let listed = |difference: &Difference| self.0.iter().any(|row| Self::covers(row, difference));
        differences.into_iter().filter(|difference| !listed(difference)).collect()
    }

    /// The rows of the list that no difference matches.
    pub fn outdated(&self, differences: &[Difference]) -> Vec<String> {
        let matched = |row: &&[String; 3]| differences.iter().any(|difference| Self::covers(row, difference));
        self.0.iter().filter(|row| !matched(row)).map(|row| format!("{} {}", row[0], row[1])).collect()
    }
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
        let record = Record { outcome: Outcome::Ok, reasons: vec![], observed, calls: vec![] };
        let case = Finished { case: "a.case".into(), record, milliseconds: 1, stderr: String::new() };
        Document { version: 1, driver: "d".into(), cases: vec![case] }
    }

    /// Hazard: a comparison overlooks a changed, a missing or a repeated answer.
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

    /// Hazard: the smaller memory of the simulator counts as a difference.
    #[test]
    fn what_describes_the_machine_is_compared_on_request_only() {
        let (first, second) = (document(&[("bytes", 1, true)]), document(&[("bytes", 2, true)]));
        assert!(compare(&first, &second, Comparison { machine: false }).is_empty());
        assert_eq!(compare(&first, &second, Comparison { machine: true }).len(), 1);
    }

    /// Hazard: a list of accepted differences hides others, or keeps outdated rows.
    #[test]
    fn accepted_differences_are_exact_and_become_outdated() {
        let (first, second) =
            (document(&[("a", 1, false), ("b", 1, false)]), document(&[("a", 2, false), ("b", 2, false)]));
        let accepted =
            Accepted::parse("# why\na.case\ta\tmeant\na.case\tgone\tmeant once\n").expect("a good list");
        let found = compare(&first, &second, Comparison { machine: false });
        assert_eq!(accepted.outdated(&found), ["a.case gone"]);
        let left = accepted.remove_from(found);
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].label, "b");
        assert!(Accepted::parse("two\tfields").is_err());
    }
}
