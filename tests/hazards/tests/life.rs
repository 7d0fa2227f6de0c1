//! Hazard (process lifecycle): fork, exec, exit under load, or short-lived threads break the
//! library.
//!
//! Each way runs under the shim with the simulated driver. If a program must see the driver's own
//! answer, it also runs without the shim, and both outputs must be equal.

use hazards::{Host, Outcome, Scratch, c, driver};

/// Runs `life` in this way under the shim.
fn live(way: &[&str]) -> Outcome {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    Host::shimmed(c::cuda_program(&scratch, "life"), &scratch, &driver).args(way).run()
}

/// A life that ends successfully and prints no line.
fn lives_well(way: &[&str]) {
    let outcome = live(way);
    outcome.expect_success();
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("", ""));
}

#[test]
fn many_threads_make_the_first_call_at_once() {
    lives_well(&["race"]);
}

#[test]
fn a_call_arrives_while_another_thread_is_still_opening_the_driver() {
    let scratch = Scratch::new();
    let driver = driver::failing(&scratch);
    let host = Host::shimmed(c::cuda_program(&scratch, "window"), &scratch, &driver);
    let outcome = host.env("WMSHIM_LOG", "info").run();
    let said = outcome.expect_success();
    assert!(said.starts_with("logging\n"), "the first call was caught at its log line: {said}");
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn a_child_forked_in_use_gets_the_drivers_own_errors() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "life");
    let bare = Host::bare(&program).env("LD_LIBRARY_PATH", &driver).args(["fork_in_use"]).run();
    let shimmed = Host::shimmed(&program, &scratch, &driver).args(["fork_in_use"]).run();
    assert_eq!(shimmed.expect_success(), bare.expect_success());
    assert!(bare.stdout.contains("cuMemAlloc 3\n"), "the driver refuses a forked child:\n{}", bare.stdout);
    assert_eq!(shimmed.stderr, "");
}

/// The allocating thread's cache of streams must not outlive a stream.
#[test]
fn a_stream_that_another_thread_destroyed_is_no_stream() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "life");
    let bare = Host::bare(&program).env("LD_LIBRARY_PATH", &driver).args(["stream_ends"]).run();
    let shimmed = Host::shimmed(&program, &scratch, &driver).args(["stream_ends"]).run();
    assert_eq!(bare.expect_success(), "cuMemAllocAsync 400");
    assert_eq!(shimmed.expect_success(), bare.expect_success());
}

/// Hazard (use after free): the last context that a device was used through ends, and its manager
/// with it, while another thread begins to use the device in a context of its own.
#[test]
fn a_device_ends_in_one_context_while_it_is_first_used_in_others() {
    lives_well(&["last_and_first", "1000"]);
}

#[test]
fn a_child_forked_before_first_use_is_an_ordinary_program() {
    lives_well(&["fork_before"]);
}

#[test]
fn a_program_that_replaces_itself_in_use_begins_anew() {
    lives_well(&["exec_in_use"]);
}

#[test]
fn programs_started_by_a_user_of_the_driver_use_it_too() {
    lives_well(&["spawn_in_use"]);
}

#[test]
fn exit_while_other_threads_are_inside_calls() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "life");
    // The moment of the exit differs between runs: one run proves little.
    for run in 0..20 {
        let outcome = Host::shimmed(&program, &scratch, &driver).args(["exit_busy"]).run();
        assert_eq!(outcome.status.code(), Some(7), "run {run}: {:?}\n{}", outcome.status, outcome.stderr);
        assert_eq!(outcome.stdout, "");
    }
}

#[test]
fn ten_thousand_threads_come_and_go() {
    lives_well(&["threads", "10000"]);
}

#[test]
fn a_thread_makes_calls_while_its_thread_local_values_go() {
    lives_well(&["thread_end"]);
}

/// Programs give their threads as little as 64 KiB. The simulated driver uses 20 of it.
#[test]
fn a_thread_with_little_stack_makes_the_first_call() {
    lives_well(&["little_stack"]);
}

#[test]
fn calls_from_exit_handlers_and_destructors() {
    lives_well(&["late"]);
}

#[test]
fn calls_from_a_constructor_before_main() {
    lives_well(&["early"]);
}

#[test]
fn a_closed_handle_does_not_unload_the_library() {
    lives_well(&["closed"]);
}
