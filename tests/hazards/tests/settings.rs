//! Hazard (error handling): a wrong setting is ignored without a line, or ends the job.
//!
//! One log line names the wrong word of a job script and the right ones.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

use hazards::resident::Resident;
use hazards::{Host, Outcome, Scratch, c, driver};

/// A program that uses the driver, with these variables.
fn with(variables: &[(&str, &str)]) -> Outcome {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let host = Host::shimmed(c::cuda_program(&scratch, "life"), &scratch, &driver).args(["closed"]);
    variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run()
}

/// A bad value: the program runs, and exactly one line names the variable, the value and the valid
/// values.
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
    is_said_once("WMSHIM_MULTIPATH_MIN", "33554432", &["MiB", "GiB"]);
}

#[test]
fn a_bad_word() {
    is_said_once("WMSHIM_OVERFLOW", "disk", &["off", "host", "peer"]);
    is_said_once("WMSHIM_OVERFLOW_CREATED", "nccl", &["auto", "torch", "all", "off"]);
    is_said_once("WMSHIM_TORCH_PIECES", "some", &["keep", "release"]);
    is_said_once("WMSHIM_TORCH_ALLOCATOR", "fast", &["auto", "async", "native", "expandable"]);
    for signal in ["SIGFOO", "11", "15", "9", "TERM"] {
        is_said_once("WMSHIM_STATS_SIGNAL", signal, &["off", "USR1", "USR2"]);
    }
    is_said_once("WMSHIM_LOG", "loud", &["off", "error", "warn", "info", "debug", "trace"]);
}

/// A limit of 48 bytes would put every block on the host while the device is empty. It is a typing
/// error.
#[test]
fn a_size_without_a_unit_is_not_in_force() {
    is_said_once("WMSHIM_DEVICE_LIMIT", "48", &["with its unit", "GiB"]);
    is_said_once("WMSHIM_DEVICE_LIMIT", "0", &["above 0"]);
    is_said_once("WMSHIM_HEADROOM", "100%", &["below 100%"]);
    is_said_once("WMSHIM_HEADROOM", "64", &["with its unit"]);
}

/// The live bytes of a program on the device and on the host.
fn tiers(variables: &[(&str, &str)]) -> (u64, u64, String) {
    let scratch = Scratch::new();
    let mut program = Resident::start_with(&scratch, variables);
    program.say("begin");
    let mut stream = UnixStream::connect(program.socket()).expect("the socket answers");
    writeln!(stream, "stats").expect("the endpoint listens");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("an answer");
    let stats: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let live = |tier: &str| stats["devices"][0]["tiers"][tier]["live_bytes"].as_u64().expect("a size");
    (live("device"), live("host"), program.end("exit"))
}

#[test]
fn a_budget_of_nothing_is_not_in_force_and_one_of_little_is_said() {
    let device = ("SIMCUDA_MEMORY", "1GiB");
    let (here, host, said) = tiers(&[device, ("WMSHIM_HEADROOM", "99GiB")]);
    assert_eq!((here, host), (8 << 20, 0), "{said}");
    assert!(said.lines().count() == 1 && said.contains("neither is in force"), "{said}");
    let (here, host, said) = tiers(&[device, ("WMSHIM_DEVICE_LIMIT", "2MiB")]);
    assert!(here <= 2 << 20 && host > 0, "a small limit may be meant: {here} {host}");
    let errors: Vec<&str> = said.lines().filter(|line| line.contains("error: ")).collect();
    assert!(errors.len() == 1 && errors[0].contains("Is a unit wrong?"), "{said}");
    let (_, _, said) = tiers(&[device, ("WMSHIM_DEVICE_LIMIT", "100MiB")]);
    assert_eq!(said, "");
}

#[test]
fn a_path_that_is_no_text_is_taken_as_it_is() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = Scratch::new();
    let odd = |name: &[u8]| scratch.path().join(std::ffi::OsStr::from_bytes(name));
    let folder = odd(b"driver\xff");
    std::fs::rename(driver::simulated(&scratch), &folder).expect("renamed");
    let host = Host::shimmed(c::cuda_program(&scratch, "life"), &scratch, &folder).args(["closed"]);
    let host = host.env("WMSHIM_STATS_DIR", odd(b"stats\xff")).env("WMSHIM_STATS_AT_EXIT", odd(b"words\xfe"));
    let outcome = host.run();
    outcome.expect_success();
    assert_eq!(outcome.stderr, "");
    assert!(odd(b"stats\xff").is_dir() && odd(b"words\xfe").is_file());
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
