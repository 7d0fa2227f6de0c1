//! Hazard: a program that behaves otherwise because the shim is there.
//!
//! Runs the whole suite over the simulated driver twice, bare and under the shim, and compares all answers. A
//! difference must be listed in `data/shim-differences.tsv`, with its reason.

mod common;

use conformance::compare::{self, Accepted, Comparison};

#[test]
fn the_shim_answers_as_the_bare_driver_does() {
    let driver = common::built("libsimcuda.so", "simcuda");
    let (mut bare, mut shimmed) = (common::suite(), common::suite());
    bare.arg("--driver").arg(&driver);
    shimmed.env("LD_PRELOAD", common::built("libwmshim.so", "wmshim")).env("WMSHIM_DRIVER", &driver);
    shimmed.env("WMSHIM_STATS_DIR", env!("CARGO_TARGET_TMPDIR"));
    let (_, bare) = common::document(bare, "bare.json");
    let (output, shimmed) = common::document(shimmed, "shimmed.json");
    let accepted = Accepted::parse(include_str!("../data/shim-differences.tsv")).expect("a good list");
    let differences = compare::compare(&bare, &shimmed, Comparison { machine: true });
    let left = accepted.remove_from(differences);
    assert!(left.is_empty(), "bare | under the shim\n{}\n{}", compare::table(&left), common::said(&output));
}
