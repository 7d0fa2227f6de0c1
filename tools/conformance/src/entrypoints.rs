//! The table of driver functions that concern memory: which cases ask about each, or why none does.
//!
//! `data/entrypoints.tsv` is written by hand; `tests/entrypoints.rs` fails when a function is missing in it, and
//! `tests/simulated.rs` when a case that it names does not make the call.

use std::collections::BTreeMap;

use crate::case::Outcome;
use crate::report::Document;

/// What the table says of one function.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// The cases that ask about it.
    Cases(Vec<String>),
    /// Why none does.
    WhyNot(String),
}

/// The table, by name. A name that ends in `*` stands for all that begin so.
#[derive(Debug)]
pub struct Table(BTreeMap<String, Said>);

impl Table {
    /// The table of this suite.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn load() -> Self {
        Self::parse(include_str!("../data/entrypoints.tsv")).unwrap_or_else(|problem| panic!("{problem}"))
    }

    /// Reads a table: a name and its cases, or names, `-` and a reason, with tabs between.
    ///
    /// # Errors
    /// The first line that is neither, or that names a function again.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut rows = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            for (name, said) in row(line).ok_or_else(|| format!("neither cases nor a reason: {line}"))? {
                if rows.insert(name.clone(), said).is_some() {
                    return Err(format!("{name} is there twice"));
                }
            }
        }
        Ok(Self(rows))
    }

    /// What is said of a function; a per-thread-stream twin goes with its function.
    pub fn of(&self, function: &str) -> Option<&Said> {
        let name = without_twin(function);
        let family = |row: &&String| row.strip_suffix('*').is_some_and(|start| name.starts_with(start));
        self.0.get(name).or_else(|| self.0.get(self.0.keys().find(family)?))
    }

    /// Every name in it.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Every function with its cases.
    pub fn cases(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.0.iter().filter_map(|(name, said)| match said {
            Said::Cases(cases) => Some((name.as_str(), cases.as_slice())),
            Said::WhyNot(_) => None,
        })
    }

    /// Cases of a run that ended well and did not call what the table says they ask about.
    pub fn not_called(&self, run: &Document) -> Vec<String> {
        let ran = run.cases.iter().filter(|case| case.record.outcome == Outcome::Ok);
        let calls: BTreeMap<&str, &Vec<String>> =
            ran.map(|case| (case.case.as_str(), &case.record.calls)).collect();
        let misses = |case: &&String, name: &str| {
            calls.get(case.as_str()).is_some_and(|calls| !calls.iter().any(|call| without_twin(call) == name))
        };
        let rows = self.cases().flat_map(|(name, cases)| cases.iter().map(move |case| (name, case)));
        rows.filter(|(name, case)| misses(case, name)).map(|(name, case)| format!("{case} {name}")).collect()
    }
}

fn row(line: &str) -> Option<Vec<(String, Said)>> {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    match line.split('\t').collect::<Vec<_>>()[..] {
        [name, cases] if cases.contains('.') && !name.contains(' ') => {
            Some(vec![(name.to_owned(), Said::Cases(words(cases)))])
        }
        [names, "-", reason] if !reason.is_empty() => {
            let said = |name| (name, Said::WhyNot(reason.to_owned()));
            Some(words(names).into_iter().map(said).collect())
        }
        _ => None,
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

    /// Hazard: a table that says what nobody checks.
    #[test]
    fn a_case_that_does_not_make_its_call_is_told() {
        let table = Table::parse("# about\ncuOne\ta.case\ncuTwo\tb.case\n").expect("a good table");
        assert_eq!(table.not_called(&run(&["cuOther"])), ["a.case cuOne"]);
        assert!(table.not_called(&run(&["cuOne_ptsz"])).is_empty());
    }

    /// Hazard: a reason that is missing, or that covers more than it should.
    #[test]
    fn rows_are_cases_or_reasons() {
        let table = Table::parse("cuA cuB*\t-\twhy\n").expect("a good table");
        assert_eq!(table.of("cuBig_ptds"), Some(&Said::WhyNot("why".into())));
        assert_eq!(table.of("cuAll"), None);
        for bad in ["cuA", "cuA\t", "cuA\t-\t", "cuA cuB\ta.case", "cuA\ta.case\ncuA\tb.case"] {
            assert!(Table::parse(bad).is_err(), "{bad}");
        }
    }
}
