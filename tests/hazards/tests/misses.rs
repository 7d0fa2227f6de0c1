//! Hazard (latency): a request that misses the free cache opens and reads files, again for each
//! ever smaller size; or a request that no memory could meet causes a warning.

use hazards::{Host, Outcome, Scratch, c, driver, places};

/// The program of `c/misses.c`, on a device of 64 MiB.
fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Outcome {
    let scratch = Scratch::new();
    let shim = places::shim();
    // Its `open` precedes the C library's for all code of the process.
    let program = c::program(&scratch, "misses", &["-rdynamic", shim.to_str().expect("a readable path")]);
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch)).args(arguments);
    let host =
        host.env("SIMCUDA_MEMORY", "64MiB").env("WMSHIM_HEADROOM", "2MiB").env("WMSHIM_STATS_SOCKET", "off");
    variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run()
}

/// The number of files that were opened meanwhile, and the last answer.
fn opened(arguments: &[&str], variables: &[(&str, &str)]) -> (u32, u32) {
    let outcome = run(arguments, variables);
    let (files, answer) = outcome.expect_success().split_once(' ').expect("two numbers");
    (files.parse().expect("a number"), answer.parse().expect("a number"))
}

/// The machine's memory, in bytes: no less than its available part.
fn machine() -> String {
    let text = std::fs::read_to_string("/proc/meminfo").expect("the kernel tells");
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    format!("{}", kib.and_then(|kib| kib.trim().parse::<u64>().ok()).expect("a number") << 10)
}

#[test]
fn nothing_is_opened_while_the_device_has_room() {
    assert_eq!(opened(&["rounds", "100"], &[]), (0, 0));
}

#[test]
fn the_host_is_asked_before_memory_is_made_there() {
    let (files, answer) = opened(&["filled"], &[]);
    assert!(answer == 0 && files > 0, "{files} files, or the counter does not count");
}

#[test]
fn a_program_that_is_refused_again_and_again_does_not_ask_the_host_each_time() {
    let (files, answer) = opened(&["refused", "200", &machine()], &[("WMSHIM_HOST_LIMIT", "off")]);
    // A dozen for each check; the lines about the 1st, 2nd, 4th, ... refusal check, too.
    assert!(answer == 2 && files < 400, "{answer}, {files} files");
}

#[test]
fn where_the_limit_leaves_nothing_the_host_is_not_asked() {
    assert_eq!(opened(&["refused", "50", "0x4000001"], &[("WMSHIM_HOST_LIMIT", "0")]), (0, 2));
}

#[test]
fn a_request_that_no_memory_could_meet_is_refused_at_once_and_without_an_alarm() {
    for bytes in ["0x10000000000", "0x8000000000000000", "0xffffffffffffffff"] {
        for variables in [&[][..], &[("WMSHIM_GUARD", "page")], &[("WMSHIM_GUARD", "canary")]] {
            let outcome = run(&["refused", "1", bytes], variables);
            assert_eq!(outcome.expect_success(), "0 2", "{bytes} {variables:?}");
            assert!(!outcome.stderr.contains("stepped aside"), "{}", outcome.stderr);
        }
    }
}
