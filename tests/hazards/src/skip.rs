//! A test that cannot run on this machine has not passed. It is recorded in a list, which `cargo
//! xtask test` counts in its last lines: nextest shows no output of a test that returns.

use std::fs::OpenOptions;
use std::io::Write;

/// The list: a file, named by `cargo xtask test`.
pub const LIST: &str = "TEST_SKIPS";

/// Records why the running test, or a part of it, is skipped; the test then returns. `reason`
/// completes "skipped: ...", and is the same text for all tests with the same missing need.
///
/// A missing build product is no reason: a test fails without it.
///
/// # Panics
/// If the list cannot be written to.
pub fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
    let Some(list) = std::env::var_os(LIST) else { return };
    let test = std::thread::current().name().unwrap_or("unnamed").to_owned();
    let mut list = OpenOptions::new().append(true).create(true).open(list).expect("the list of skips");
    // One write of one line: tests of several processes write at once.
    list.write_all(format!("{test}\t{reason}\n").as_bytes()).expect("a line in the list of skips");
}
