//! The cases that test a driver function, or the reason why none does.
//!
//! The source is the column `cases` of `shim/abi/data/driver.tsv`, from which `cargo xtask
//! generate` writes the index here. `tests/entrypoints.rs` fails when an intercepted function has
//! no case, and `tests/simulated.rs` when a case that the index names does not make the call.

use std::collections::BTreeMap;

use crate::case::Outcome;
use crate::report::Document;

include!("generated/entrypoints.rs");

/// The index entry of one function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// The cases that test it.
    Cases(&'static [&'static str]),
    /// The reason why none does.
    WhyNot(&'static str),
}

/// The index, sorted by name. A per-thread twin goes with its function.
#[derive(Debug)]
pub struct Table(&'static [(&'static str, Said)]);

impl Table {
    /// The index of this suite.
    pub const fn load() -> Self {
        Self(ENTRY_POINTS)
    }

    /// The entry of a function or its per-thread twin.
    pub fn of(&self, function: &str) -> Option<Said> {
        let name = without_twin(function);
        let at = self.0.binary_search_by_key(&name, |(name, _)| name).ok()?;
        Some(self.0[at].1)
    }

    /// Every function with its cases.
    pub fn cases(&self) -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
        self.0.iter().filter_map(|(name, said)| match said {
            Said::Cases(cases) => Some((*name, *cases)),
            Said::WhyNot(_) => None,
        })
    }

    /// Cases of a successful run that did not make the call for which the index names them.
    pub fn not_called(&self, run: &Document) -> Vec<String> {
        let ran = run.cases.iter().filter(|case| case.record.outcome == Outcome::Ok);
        let calls: BTreeMap<&str, &Vec<String>> =
            ran.map(|case| (case.case.as_str(), &case.record.calls)).collect();
        let misses = |case: &str, name: &str| {
            calls.get(case).is_some_and(|calls| !calls.iter().any(|call| without_twin(call) == name))
        };
        let rows = self.cases().flat_map(|(name, cases)| cases.iter().map(move |case| (name, *case)));
        rows.filter(|(name, case)| misses(case, name)).map(|(name, case)| format!("{case} {name}")).collect()
    }
}

/// A function's name without the ending of its per-thread-stream twin.
pub fn without_twin(function: &str) -> &str {
    function.strip_suffix("_ptsz").or_else(|| function.strip_suffix("_ptds")).unwrap_or(function)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Record;
    use crate::runner::Finished;

    fn run(calls: &[&str]) -> Document {
        let calls = calls.iter().map(|call| (*call).to_owned()).collect();
        let record = Record { outcome: Outcome::Ok, reasons: vec![], observed: vec![], calls };
        let case = Finished { case: "a.case".into(), record, milliseconds: 1, stderr: String::new() };
        Document { version: 1, driver: "d".into(), cases: vec![case] }
    }

    /// Hazard (vacuous test): no run checks the index.
    #[test]
    fn a_case_that_does_not_make_its_call_is_told() {
        let table = Table(&[("cuOne", Said::Cases(&["a.case"])), ("cuTwo", Said::Cases(&["b.case"]))]);
        assert_eq!(table.not_called(&run(&["cuOther"])), ["a.case cuOne"]);
        assert!(table.not_called(&run(&["cuOne_ptsz"])).is_empty());
    }

    #[test]
    fn a_twin_goes_with_its_function() {
        let table = Table(&[("cuA", Said::WhyNot("why"))]);
        assert_eq!(table.of("cuA_ptds"), Some(Said::WhyNot("why")));
        assert_eq!(table.of("cuA_v2"), None);
    }
}
