//! Hazard (process lifecycle): a seccomp filter of a container or sandbox refuses a system call,
//! and the program fails. The library must do without the call and log a missing feature once.

use hazards::{Host, Outcome, Scratch, c, driver, skip};

/// The outcome of a program that uses the driver while these system calls are forbidden. `None`: no
/// filter can be set here.
fn without(calls: &[libc::c_long]) -> Option<Outcome> {
    let scratch = Scratch::new();
    let (filter, program) = (c::program(&scratch, "denied", &[]), c::cuda_program(&scratch, "life"));
    let calls: Vec<String> = calls.iter().map(libc::c_long::to_string).collect();
    let host = Host::shimmed(filter, &scratch, &driver::simulated(&scratch)).args([calls.join(",")]);
    let outcome = host.args([&program]).args(["closed"]).run();
    if outcome.status.code() == Some(77) {
        skip("needs filters of system calls");
        return None;
    }
    outcome.expect_success();
    Some(outcome)
}

/// Hazard: an installed driver is not found.
#[test]
fn where_links_cannot_be_read_the_driver_is_found_all_the_same() {
    if let Some(outcome) = without(&[libc::SYS_readlink, libc::SYS_readlinkat]) {
        assert_eq!(outcome.stderr, "");
    }
}

/// Hazard: a program fails, or a line has no remedy.
#[test]
fn without_sockets_and_threads_of_ours_one_line_says_what_is_missing() {
    for (calls, words) in [
        (&[libc::SYS_socket][..], &["no socket at", "filter of system calls", "WMSHIM_STATS_SOCKET=off"][..]),
        (&[libc::SYS_bind], &["no socket at", "WMSHIM_STATS_SOCKET=off"]),
        (&[libc::SYS_mkdir, libc::SYS_mkdirat], &["no socket in", "WMSHIM_STATS_DIR"]),
        (&[libc::SYS_pipe, libc::SYS_pipe2], &["statistics"]),
        (&[libc::SYS_getrandom], &["statistics"]),
    ] {
        let Some(outcome) = without(calls) else { return };
        let said = &outcome.stderr;
        assert_eq!(said.lines().count(), 1, "{calls:?}: {said}");
        words.iter().for_each(|word| assert!(said.contains(word), "{calls:?}: {word:?} is not in {said}"));
    }
}
