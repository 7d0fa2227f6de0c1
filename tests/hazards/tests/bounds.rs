//! Hazard (out-of-bounds access): a copy or memset that runs past the end of its block overwrites
//! the next block of the same mapping. The driver refuses the call and writes nothing.
//!
//! Every form of copy and memset, of blocks that have a neighbour, bare and under the library: the
//! answers are the same, and the forms that stay inside succeed.

use hazards::{Host, Outcome, Scratch, c, driver};

const KIB: &str = "65536";

/// Runs `bounds` with these words, bare and under the library, and expects the same answers.
fn assert_answered_as_bare(words: &[&str], variables: &[(&str, &str)]) {
    let scratch = Scratch::new();
    let (program, driver) = (c::cuda_program(&scratch, "bounds"), driver::simulated(&scratch));
    let with = |host: Host| {
        let host = host.args(words).env("SIMCUDA_MEMORY", "2GiB");
        variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run()
    };
    let bare = with(Host::bare(&program).env("LD_LIBRARY_PATH", &driver));
    let ours = with(Host::shimmed(&program, &scratch, &driver));
    assert_refused(&bare, words);
    ours.expect_success();
    assert_eq!(ours.stdout, bare.stdout, "{words:?} {variables:?}");
}

/// The tests' assumption about the driver: it makes the calls that stay inside, and refuses the
/// others.
fn assert_refused(bare: &Outcome, words: &[&str]) {
    let lines: Vec<_> = bare.expect_success().lines().collect();
    assert!(lines.len() > 60, "{words:?}: {} forms were tried", lines.len());
    let wrong: Vec<_> = lines.iter().filter(|line| !line.ends_with(": 0, past it 1")).collect();
    assert!(wrong.is_empty(), "{words:?}: {wrong:?}");
}

#[test]
fn one_byte_past_the_end_is_refused_in_every_form() {
    assert_answered_as_bare(&["plain", KIB, "1"], &[]);
}

#[test]
fn a_whole_block_past_the_end_is_refused_in_every_form() {
    assert_answered_as_bare(&["plain", KIB, KIB], &[]);
}

#[test]
fn what_was_asked_for_counts_and_not_what_it_is_rounded_to() {
    assert_answered_as_bare(&["plain", "65540", "1"], &[]);
    assert_answered_as_bare(&["plain", "65540", "700"], &[]);
}

#[test]
fn blocks_of_the_pool_are_bounded_too() {
    assert_answered_as_bare(&["pool", KIB, "1"], &[]);
    assert_answered_as_bare(&["pool", "65540", KIB], &[]);
}

#[test]
fn blocks_that_are_cut_from_a_larger_extent_are_bounded_too() {
    assert_answered_as_bare(&["cut", "1048576", "262144"], &[]);
}

/// The answer comes at the call, though the stream does no work until the program has made all its
/// calls.
#[test]
fn a_stream_that_is_held_back_changes_no_answer() {
    assert_answered_as_bare(&["plain", KIB, "1", "held"], &[]);
    assert_answered_as_bare(&["pool", KIB, "1", "held"], &[]);
}

#[test]
fn it_holds_whatever_is_switched_on() {
    for variables in [
        &[("WMSHIM_MIGRATE", "on")][..],
        &[("WMSHIM_DEDUP", "on")],
        &[("WMSHIM_MULTIPATH", "off")],
        &[("WMSHIM_DEVICE_LIMIT", "2MiB")],
    ] {
        assert_answered_as_bare(&["plain", KIB, "1"], variables);
    }
}

/// With several devices the library handles copies itself, before the driver sees them.
#[test]
fn it_holds_with_several_devices() {
    let devices = ("SIMCUDA_DEVICES", "2");
    assert_answered_as_bare(&["plain", KIB, "1"], &[devices]);
    assert_answered_as_bare(&["cut", "1048576", "262144"], &[devices, ("WMSHIM_MULTIPATH", "0,1")]);
}
