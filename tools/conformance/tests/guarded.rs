//! Hazard (API conformance): a guard changes an answer of the driver, so that a program takes
//! another path while it is examined.
//!
//! The cases that concern memory, over the simulated driver, bare and under the shim with a guard.
//! A difference must be listed in `data/shim-differences.tsv`, or in
//! `data/page-guard-differences.tsv` for that guard.

mod common;

use conformance::compare::{self, Accepted, Comparison};

const AREAS: [&str; 4] = ["memory.", "pool", "pointer.", "graph."];

fn differs(guard: &str, lists: &[&str]) {
    let driver = common::built("libsimcuda.so", "simcuda");
    let (mut bare, mut guarded) = (common::suite(), common::suite());
    for area in AREAS {
        bare.args(["--filter", area]);
        guarded.args(["--filter", area]);
    }
    bare.arg("--driver").arg(&driver);
    guarded.env("LD_PRELOAD", common::built("libwmshim.so", "wmshim")).env("WMSHIM_DRIVER", &driver);
    guarded.env("WMSHIM_STATS_SOCKET", "off").env("WMSHIM_GUARD", guard);
    let (_, bare) = common::document(bare, &format!("bare-{guard}.json"));
    let (output, guarded) = common::document(guarded, &format!("{guard}.json"));
    assert!(!bare.cases.is_empty(), "the areas have cases");
    let differences = compare::compare(&bare, &guarded, Comparison { machine: true });
    let left = lists
        .iter()
        .fold(differences, |left, list| Accepted::parse(list).expect("a good list").remove_from(left));
    assert!(left.is_empty(), "bare | {guard}\n{}\n{}", compare::table(&left), common::said(&output));
    let reports = guarded.cases.iter().filter(|case| case.stderr.contains("a write past the end"));
    assert_eq!(
        reports.map(|case| &case.case).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "nobody is accused"
    );
}

#[test]
fn unmapped_space_behind_blocks_changes_no_answer() {
    let lists =
        [include_str!("../data/shim-differences.tsv"), include_str!("../data/page-guard-differences.tsv")];
    differs("page", &lists);
}

#[test]
fn patterns_behind_blocks_change_no_answer() {
    differs("canary", &[include_str!("../data/shim-differences.tsv")]);
}
