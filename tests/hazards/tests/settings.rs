//! Guards against settings that are ignored in silence, or that end the job.
//!
//! A typing error in a job script is found by whoever reads the log, if it is said once and says what would be right.

use hazards::{Host, Outcome, Scratch, c, driver};

/// A program that uses the driver, with these variables.
fn with(variables: &[(&str, &str)]) -> Outcome {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let host = Host::shimmed(c::cuda_program(&scratch, "life"), &scratch, &driver).args(["closed"]);
    variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run()
}

/// A bad value: the program runs, and exactly one line names the variable, the value and what is valid.
fn is_said_once(variable: &str, value: &str, valid: &[&str]) {
    one_line(variable, value, &[&[variable, value], valid].concat());
}

/// The program runs, and exactly one line holds these words.
fn one_line(variable: &str, value: &str, words: &[&str]) {
    let outcome = with(&[(variable, value)]);
    outcome.expect_success();
    let lines: Vec<_> = outcome.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{variable}={value}:\n{}", outcome.stderr);
    for word in words {
        assert!(lines[0].contains(word), "{word:?} is not in: {}", lines[0]);
    }
}

#[test]
fn a_bad_switch() {
    is_said_once("WMSHIM_STITCH", "maybe", &["on", "off"]);
    is_said_once("WMSHIM_DISABLE", "perhaps", &["on", "off"]);
}

#[test]
fn a_bad_size() {
    is_said_once("WMSHIM_DEVICE_LIMIT", "48 gallons", &["MiB", "GiB", "%"]);
    is_said_once("WMSHIM_HEADROOM", "140%", &["MiB", "GiB", "%"]);
    is_said_once("WMSHIM_HOST_LIMIT", "-1GiB", &["MiB", "GiB", "%"]);
    is_said_once("WMSHIM_PEER_LIMIT", "all", &["MiB", "GiB", "%"]);
}

#[test]
fn a_bad_word() {
    is_said_once("WMSHIM_OVERFLOW", "disk", &["off", "host", "peer"]);
    is_said_once("WMSHIM_OVERFLOW_CREATED", "nccl", &["torch", "all", "off"]);
    is_said_once("WMSHIM_TORCH_PIECES", "some", &["keep", "release"]);
    is_said_once("WMSHIM_TORCH_SHORTAGE", "loud", &["told", "hidden"]);
    is_said_once("WMSHIM_TORCH_ALLOCATOR", "fast", &["auto", "async", "native", "expandable"]);
    is_said_once("WMSHIM_STATS_SIGNAL", "SIGFOO", &["off", "USR1", "USR2"]);
    is_said_once("WMSHIM_LOG", "loud", &["off", "error", "warn", "info", "debug", "trace"]);
}

#[test]
fn an_unknown_variable() {
    one_line("WMSHIM_FOO", "1", &["WMSHIM_FOO", "WMSHIM_STITCH", "WMSHIM_OVERFLOW"]);
}

#[test]
fn a_value_that_is_not_text() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let host = Host::shimmed(c::cuda_program(&scratch, "life"), &scratch, &driver).args(["closed"]);
    let outcome = host.env("WMSHIM_STITCH", std::ffi::OsStr::from_bytes(b"\xff\xfe")).run();
    outcome.expect_success();
    assert_eq!(
        outcome.stderr.lines().count(),
        1,
        "one line says that it is not understood: {:?}",
        outcome.stderr
    );
}

#[test]
fn good_values_are_taken_in_silence() {
    let outcome = with(&[
        ("WMSHIM_STITCH", "on"),
        ("WMSHIM_DEVICE_LIMIT", "80%"),
        ("WMSHIM_HEADROOM", "64MiB"),
        ("WMSHIM_OVERFLOW", "peer,host"),
        ("WMSHIM_OVERFLOW_CREATED", "all"),
        ("WMSHIM_TORCH_SHORTAGE", "hidden"),
        ("WMSHIM_TORCH_PIECES", "keep"),
        ("WMSHIM_STATS_SIGNAL", "USR1"),
        ("WMSHIM_LOG", "warn"),
        ("WMSHIM_TORCH_ALLOCATOR", ""),
    ]);
    outcome.expect_success();
    assert_eq!(outcome.stderr, "");
}

#[test]
fn disabled_means_that_everything_is_forwarded() {
    let outcome = with(&[("WMSHIM_DISABLE", "1"), ("WMSHIM_LOG", "info")]);
    outcome.expect_success();
    let talk: Vec<_> = outcome.log().into_iter().filter(|line| !line.contains("info: driver ")).collect();
    assert!(talk.is_empty(), "nothing but the driver's path is said: {talk:?}");
}

#[test]
fn a_bad_value_says_nothing_in_a_program_without_cuda() {
    let scratch = Scratch::new();
    let host = Host::shimmed("/bin/true", &scratch, scratch.path()).env("WMSHIM_STITCH", "maybe");
    assert_eq!(host.run().stderr, "");
}
