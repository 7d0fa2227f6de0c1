//! Hazard (API conformance): a program gets another answer because the shim is loaded.
//!
//! Runs the whole suite over the simulated driver twice, bare and under the shim, and compares all
//! answers. A difference must be listed in `data/shim-differences.tsv`, with its reason.

mod common;

use conformance::compare::{self, Accepted, Comparison};

fn compared(bare_file: &str, shimmed_file: &str, variables: &[(&str, &str)]) {
    let driver = common::built("libsimcuda.so", "simcuda");
    let (mut bare, mut shimmed) = (common::suite(), common::suite());
    bare.arg("--driver").arg(&driver);
    shimmed.env("LD_PRELOAD", common::built("libwmshim.so", "wmshim")).env("WMSHIM_DRIVER", &driver);
    shimmed.env("WMSHIM_STATS_DIR", env!("CARGO_TARGET_TMPDIR")).envs(variables.iter().copied());
    let (_, bare) = common::document(bare, bare_file);
    let (output, shimmed) = common::document(shimmed, shimmed_file);
    let accepted = Accepted::parse(include_str!("../data/shim-differences.tsv")).expect("a good list");
    let differences = compare::compare(&bare, &shimmed, Comparison { machine: true });
    let left = accepted.remove_from(differences);
    assert!(left.is_empty(), "bare | under the shim\n{}\n{}", compare::table(&left), common::said(&output));
}

#[test]
fn the_shim_answers_as_the_bare_driver_does() {
    compared("bare.json", "shimmed.json", &[]);
}

/// Every call that submits work, and many that do not, pass the gate then.
#[test]
fn it_does_so_while_memory_may_move() {
    compared("bare-beside-gate.json", "gate.json", &[("WMSHIM_MIGRATE", "on")]);
}
