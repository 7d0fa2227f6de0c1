//! Hazard (vacuous test): the simulated driver gives other answers than the real one, and every
//! test on it proves nothing.
//!
//! Runs the whole suite over the simulated driver and compares its answers with those that H200s
//! gave (`data/`). Both must hold: no failed case, and no answer of its own. And each case makes
//! the calls that the table of entry points says.

mod common;

use conformance::compare::{self, Comparison};
use conformance::entrypoints::Table;

#[test]
fn every_case_passes_and_answers_like_the_real_driver() {
    let mut suite = common::suite();
    suite.arg("--driver").arg(common::built("libsimcuda.so", "simcuda"));
    let (output, simulated) = common::document(suite, "simulated.json");
    let real = include_str!("../data/observed-h200-580.json");
    let real = serde_json::from_str(real).expect("a document of this suite");
    let differences = compare::compare(&real, &simulated, Comparison { machine: false });
    let table = compare::table(&differences);
    assert!(output.status.success(), "{}\nreal | simulated\n{table}", common::said(&output));
    assert!(differences.is_empty(), "real | simulated\n{table}");
    let idle = Table::load().not_called(&simulated);
    assert!(idle.is_empty(), "shim/abi/data/driver.tsv names cases that do not make the call: {idle:?}");
}

#[test]
fn functions_found_through_the_look_up_answer_alike() {
    let mut suite = common::suite();
    suite.arg("--driver").arg(common::built("libsimcuda.so", "simcuda"));
    let output =
        suite.args(["--lookup", "proc-address", "--filter", "memory."]).output().expect("the suite starts");
    assert!(output.status.success(), "{}", common::said(&output));
}

#[test]
fn a_driver_that_is_not_there_is_one_clear_message() {
    let output =
        common::suite().args(["--driver", "/nonexistent/libcuda.so.1"]).output().expect("the suite starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(common::said(&output).contains("name one with --driver"), "{}", common::said(&output));
}
