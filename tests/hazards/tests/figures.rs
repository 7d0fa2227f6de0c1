//! Hazard (API conformance): a program adds its own memory to the driver's figure for free memory,
//! gets more than the device has, and ends itself. PyTorch does so when cuDNN requests a workspace.

use hazards::{Host, Scratch, c, driver};

/// 256 MiB of blocks on a device of 64 MiB: free at first, free at the end, total at the end, in
/// MiB.
fn run(variables: &[(&str, &str)]) -> [u64; 3] {
    run_with(&[], variables)
}

fn run_with(arguments: &[&str], variables: &[(&str, &str)]) -> [u64; 3] {
    let scratch = Scratch::new();
    let program = c::cuda_program(&scratch, "figures");
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch)).args(arguments);
    let host = host.env("SIMCUDA_MEMORY", "64MiB");
    let outcome = variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run();
    let words = outcome.expect_success().split(' ').map(|word| word.parse().expect("a number"));
    words.collect::<Vec<_>>().try_into().expect("three figures")
}

#[test]
fn free_and_held_are_never_more_than_the_total() {
    let [first, last, total] = run(&[]);
    assert_eq!(total, 64, "once nothing has overflowed any more, the total is the device's");
    assert!(first <= 64 && last <= 64 && last + 2 >= first, "{first} MiB free at first, {last} at the end");
}

#[test]
fn a_limit_makes_no_difference_to_that() {
    let [first, last, total] = run(&[("WMSHIM_DEVICE_LIMIT", "20MiB")]);
    assert_eq!((first, last, total), (20, 20, 64));
}

/// Hazard: a program that allocates all memory that is reported as free is refused, or gets the
/// last of it in host memory.
#[test]
fn what_is_said_to_be_free_can_be_had_on_the_device() {
    let [first, last, _] = run_with(&["all"], &[("WMSHIM_OVERFLOW", "off"), ("WMSHIM_HEADROOM", "16MiB")]);
    assert!((first, last) == (48, 0), "{first} MiB free at first, {last} at the end");
}
