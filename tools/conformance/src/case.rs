//! A case records answers, expects known ones, and stops if its preparation fails.
//!
//! A failed expectation does not end the case, so that one run reports all faults. A failed call
//! that only prepares the question ends it ([`Halt`]).

use std::fmt::Display;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use wm_abi::CUresult;

use crate::driver::Driver;
use crate::fixture::process;
pub use crate::verdict::{Halt, Verdict};

/// One recorded answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// The question.
    pub label: String,
    /// The answer, free of addresses and times.
    pub value: Value,
    /// Does it describe the machine rather than the driver? Then it is compared only between runs
    /// on one machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub machine: bool,
}

/// The outcome of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Every expectation held.
    Ok,
    /// One did not, or the case's process ended without returning.
    Failed,
    /// The driver or machine lacks a need of the case.
    Skipped,
}

/// The results of a case: the document that its process hands to the runner.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The outcome.
    pub outcome: Outcome,
    /// The reasons, one entry a failed expectation.
    pub reasons: Vec<String>,
    /// The answers, in the order of asking.
    pub observed: Vec<Observation>,
    /// The driver's functions that it called, its partners' included, by exported name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<String>,
}

/// A running case.
#[derive(Debug)]
pub struct Case {
    /// The driver under test.
    pub driver: &'static Driver,
    tell: fn(&Observation),
    observed: Vec<Observation>,
    failures: Vec<String>,
}

impl Case {
    /// A case without questions yet. Each answer is passed to `tell` at once: if a case crashes the
    /// process, its earlier answers are known.
    pub fn new(driver: &'static Driver, tell: fn(&Observation)) -> Self {
        Self { driver, tell, observed: Vec::new(), failures: Vec::new() }
    }

    fn record(&mut self, observation: Observation) {
        (self.tell)(&observation);
        self.observed.push(observation);
    }

    /// Records an answer.
    pub fn observe(&mut self, label: impl Into<String>, value: impl Into<Value>) {
        self.record(Observation { label: label.into(), value: value.into(), machine: false });
    }

    /// Records an answer that may differ on another machine: a size, a name, a count.
    pub fn observe_machine(&mut self, label: impl Into<String>, value: impl Into<Value>) {
        self.record(Observation { label: label.into(), value: value.into(), machine: true });
    }

    /// Records a status code.
    pub fn code(&mut self, label: impl Into<String>, code: CUresult) {
        self.observe(label, short(code));
    }

    /// Fails the case with `message` unless `condition` holds.
    pub fn expect(&mut self, condition: bool, message: impl Display) {
        if !condition {
            self.failures.push(message.to_string());
        }
    }

    /// Records a status code and expects it to be `expected`.
    pub fn expect_code(&mut self, label: &str, code: CUresult, expected: CUresult) {
        self.expect_one_of(label, code, &[expected]);
    }

    /// Records a status code and expects it to be one of the known answers of drivers.
    pub fn expect_one_of(&mut self, label: &str, code: CUresult, allowed: &[CUresult]) {
        self.code(label, code);
        let wanted: Vec<String> = allowed.iter().map(|code| short(*code)).collect();
        self.expect(
            allowed.contains(&code),
            format!("{label}: {}, not {}", short(code), wanted.join(" or ")),
        );
    }

    /// Records success or its absence, and expects success.
    pub fn expect_ok(&mut self, label: &str, code: CUresult) {
        self.expect_code(label, code, CUresult::SUCCESS);
    }

    /// Records a value and expects it to be `expected`.
    pub fn expect_eq<T>(&mut self, label: &str, actual: T, expected: T)
    where
        T: PartialEq + std::fmt::Debug + Into<Value>,
    {
        let message = format!("{label}: {actual:?}, not {expected:?}");
        self.expect(actual == expected, message);
        self.observe(label, actual);
    }

    /// Expects `condition`, and records it under `label`.
    pub fn expect_that(&mut self, label: &str, condition: bool) {
        self.observe(label, condition);
        self.expect(condition, format!("not so: {label}"));
    }

    /// The record of this case, from the return value of its function.
    pub fn finish(self, verdict: Verdict) -> Record {
        let Self { driver, observed, failures: mut reasons, .. } = self;
        let mut calls: Vec<String> = driver.called().into_iter().map(str::to_owned).collect();
        calls.extend(process::called_by_partners());
        let mut outcome = Outcome::Ok;
        match verdict {
            Ok(()) => {}
            Err(Halt::Failed(reason)) => reasons.push(reason),
            Err(Halt::Skipped(reason)) if reasons.is_empty() => {
                return Record { outcome: Outcome::Skipped, reasons: vec![reason], observed, calls };
            }
            Err(Halt::Skipped(_)) => {}
        }
        if !reasons.is_empty() {
            outcome = Outcome::Failed;
        }
        Record { outcome, reasons, observed, calls }
    }
}

/// A code's name without the prefix that all share.
pub fn short(code: CUresult) -> String {
    let name = code.name().map(|name| name.trim_start_matches("CUDA_ERROR_").trim_start_matches("CUDA_"));
    name.map_or_else(|| format!("code {}", code.0), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case() -> Case {
        let driver = Driver::open("libc.so.6", crate::driver::Lookup::Exported).expect("the C library opens");
        Case::new(driver, |_| {})
    }

    /// Hazard: a suite that cannot fail.
    #[test]
    fn a_wrong_code_fails_the_case_and_is_recorded() {
        let mut case = case();
        case.expect_code("asked", CUresult::OUT_OF_MEMORY, CUresult::SUCCESS);
        let record = case.finish(Ok(()));
        assert_eq!(record.outcome, Outcome::Failed);
        assert_eq!(record.reasons, ["asked: OUT_OF_MEMORY, not SUCCESS"]);
        assert_eq!(record.observed[0].value, "OUT_OF_MEMORY");
    }

    /// Hazard: a failure that a later skip hides.
    #[test]
    fn a_skip_does_not_hide_a_failure() {
        let mut case = case();
        case.expect(false, "wrong");
        assert_eq!(case.finish(Err(Halt::Skipped("no peer".into()))).outcome, Outcome::Failed);
    }
}
