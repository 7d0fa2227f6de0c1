//! Hazard (API conformance): a program gets another answer because the shim is loaded.
//!
//! Runs the whole suite over the simulated driver, bare and under the shim, and compares all
//! answers. A difference must be listed in `data/shim-differences.tsv`, with its reason.

mod common;

fn compared(name: &str, variables: &[(&str, &str)]) {
    let mut shimmed = common::shimmed();
    shimmed.env_remove("WMSHIM_STATS_SOCKET").env("WMSHIM_STATS_DIR", env!("CARGO_TARGET_TMPDIR"));
    shimmed.envs(variables.iter().copied());
    common::answers_as_bare(shimmed, name, &[include_str!("../data/shim-differences.tsv")]);
}

#[test]
fn the_shim_answers_as_the_bare_driver_does() {
    compared("shimmed", &[]);
}

/// Every call that submits work, and many others, then pass the gate.
#[test]
fn it_does_so_while_memory_may_move() {
    compared("gate", &[("WMSHIM_MIGRATE", "on")]);
}

/// The same, without moves that the library begins itself.
#[test]
fn it_does_so_while_it_can_be_paused() {
    compared("pausable", &[("WMSHIM_PAUSE", "on")]);
}
