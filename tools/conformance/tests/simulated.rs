//! Hazard (vacuous test): the simulated driver gives other answers than the real one, and every
//! test on it proves nothing.
//!
//! Runs the whole suite over the simulated driver and compares its answers with those of H200s
//! (`data/`). Two conditions must hold: no case fails, and no answer differs. And each case makes
//! the calls that the table of entry points names.

mod common;

use std::process::Command;

use conformance::case::Outcome;
use conformance::compare::{self, Comparison};
use conformance::entrypoints::Table;
use conformance::report;

#[test]
fn every_case_passes_and_answers_like_the_real_driver() {
    let simulated = common::bare();
    let real = include_str!("../data/observed-h200-580.json");
    let real = serde_json::from_str(real).expect("a document of this suite");
    let differences = compare::compare(&real, &simulated, Comparison { machine: false });
    let table = compare::table(&differences);
    let failed = simulated.cases.iter().filter(|case| case.record.outcome == Outcome::Failed);
    let failed: Vec<String> = failed.map(report::line).collect();
    assert!(failed.is_empty(), "{}\nreal | simulated\n{table}", failed.join("\n"));
    assert!(differences.is_empty(), "real | simulated\n{table}");
    let idle = Table::load().not_called(&simulated);
    assert!(idle.is_empty(), "shim/abi/data/driver.tsv names cases that do not make the call: {idle:?}");
}

#[test]
#[should_panic(expected = "name one with --driver")]
fn a_document_of_an_earlier_run_is_not_read() {
    let real = include_str!("../data/observed-h200-580.json");
    std::fs::write(common::scratch("stale.json"), real).expect("a file in the target folder");
    let mut suite = Command::new(env!("CARGO_BIN_EXE_conformance"));
    suite.args(["--driver", "/nonexistent/libcuda.so.1"]);
    common::document(suite, "stale.json");
}

#[test]
fn functions_found_through_the_look_up_answer_alike() {
    let output = common::suite()
        .args(["--lookup", "proc-address", "--filter", "memory."])
        .output()
        .expect("the suite starts");
    assert!(output.status.success(), "{}", common::said(&output));
}

#[test]
fn a_driver_that_is_not_there_is_one_clear_message() {
    let mut suite = Command::new(env!("CARGO_BIN_EXE_conformance"));
    let output = suite.args(["--driver", "/nonexistent/libcuda.so.1"]).output().expect("the suite starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(common::said(&output).contains("name one with --driver"), "{}", common::said(&output));
}
