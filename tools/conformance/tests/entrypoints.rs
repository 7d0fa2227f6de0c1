//! Hazard (API conformance): a driver function that gets, shares or reports memory has no
//! comparison under the shim: a function of a new CUDA release, or one that was hooked in passing.
//!
//! `shim/abi/data/driver.tsv` has cases or a reason for every function, and cases for each that the
//! shim intercepts.

use std::collections::BTreeSet;

use conformance::cases::CASES;
use conformance::entrypoints::{Said, Table, without_twin};
use wm_abi::symbol;

fn driver() -> impl Iterator<Item = &'static str> {
    symbol::NAMES.iter().map(|name| name.to_str().expect("C identifiers are ASCII"))
}

/// The functions that the rows of `hooks!` name: each row begins with a line of names.
fn intercepted() -> BTreeSet<&'static str> {
    let table = include_str!("../../../shim/preload/src/hooks/table.rs");
    let rows = table.lines().map(str::trim).filter(|line| line.starts_with("cu"));
    let names = rows.flat_map(|line| line.split(',').map(str::trim)).filter(|name| !name.is_empty());
    names.map(without_twin).collect()
}

#[test]
fn every_intercepted_function_has_a_case() {
    let table = Table::load();
    let rows = intercepted();
    assert!(rows.len() > 50, "shim/preload/src/hooks/table.rs has another form now");
    let without = |name: &&str| !matches!(table.of(name), Some(Said::Cases(_)));
    let missing: Vec<&str> = rows.into_iter().filter(without).collect();
    assert!(
        missing.is_empty(),
        "intercepted, and its row in shim/abi/data/driver.tsv names no case: {missing:?}"
    );
}

#[test]
fn every_function_has_an_answer_and_every_case_exists() {
    let table = Table::load();
    let missing: Vec<&str> = driver().filter(|name| table.of(name).is_none()).collect();
    assert!(missing.is_empty(), "cases are found by the name in the index: {missing:?}");
    let cases: BTreeSet<&str> = CASES.iter().map(|row| row.name).collect();
    let named = table.cases().flat_map(|(_, named)| named).copied();
    let unknown: BTreeSet<&str> = named.filter(|case| !cases.contains(case)).collect();
    assert!(unknown.is_empty(), "there are no such cases: {unknown:?}");
}
