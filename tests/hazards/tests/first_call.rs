//! Hazard (process lifecycle): a program's first driver call is not the one that the library
//! expects.
//!
//! Programs do not begin with `cuInit`: a profiler queries the version, a library a function's
//! address. Every first call opens the driver; its arguments must arrive unchanged, and the
//! driver's answer must come back.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hazards::{Host, Scratch, c, driver, shim};
use wm_abi::symbol::COUNT;

/// Runs `first_call` in this way with every function but `skipped`. Returns the number of answers.
fn answered(way: &str, settings: &[(&str, &str)], skipped: &BTreeSet<String>) -> usize {
    let scratch = Scratch::new();
    let echo = driver::echo(&scratch);
    let program = c::program(&scratch, "first_call", &[&c::flag("-I", scratch.path())]);
    let host = Host::shimmed(program, &scratch, &echo).args([way]).args(skipped);
    let outcome = settings.iter().fold(host, |host, (name, value)| host.env(name, value)).run();
    outcome.expect_success().parse().expect("a number")
}

#[test]
fn every_function_can_come_first_and_gets_all_its_arguments() {
    assert_eq!(answered("fresh", &[("WMSHIM_DISABLE", "1")], &BTreeSet::new()), COUNT);
}

#[test]
fn functions_that_are_not_hooked_are_one_jump_with_the_hooks_in_place() {
    let hooked = shim::hooked();
    // Where memory may move or be shared, calls that submit work or write memory pass the gate,
    // whether they are hooked or not. By default none is shared if none may move.
    let settings = [("WMSHIM_STATS_SOCKET", "off"), ("WMSHIM_MIGRATE", "off")];
    let plain = answered("steady", &settings, &hooked);
    assert_eq!(plain + hooked.len(), COUNT);
}

/// Runs `first_operation` with and without the shim: all answers must be the same.
fn answers_alike(driver: fn(&Scratch) -> PathBuf) {
    let scratch = Scratch::new();
    let driver = driver(&scratch);
    let program = c::cuda_program(&scratch, "first_operation");
    let bare = Host::bare(&program).env("LD_LIBRARY_PATH", &driver).run();
    let shimmed = Host::shimmed(&program, &scratch, &driver).run();
    let expected = sorted(bare.expect_success());
    assert!(expected.len() > 40, "{}", bare.stdout);
    assert_eq!(sorted(shimmed.expect_success()), expected);
    assert_eq!(shimmed.stderr, bare.stderr);
}

#[test]
fn what_comes_first_is_answered_as_the_driver_answers() {
    answers_alike(driver::simulated);
}

#[test]
fn a_driver_in_which_all_fails_is_passed_on_as_it_is() {
    answers_alike(driver::failing);
}

#[test]
fn the_driver_is_not_opened_before_a_call() {
    let scratch = Scratch::new();
    // A file that is no library: to open it would fail with a log line.
    let broken = scratch.file("libcuda.so.1", "not a library");
    let outcome = Host::shimmed(Path::new("/bin/true"), &scratch, &broken).run();
    outcome.expect_success();
    assert_eq!(outcome.stderr, "");
}

/// Lines in a fixed order: several children write them.
fn sorted(text: &str) -> BTreeSet<&str> {
    text.lines().collect()
}
