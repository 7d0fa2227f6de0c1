//! Hazard (API conformance): a guard changes an answer of the driver, so that the examined program
//! takes another path.
//!
//! The cases that concern memory, over the simulated driver, bare and under the shim with a guard.
//! A difference must be listed in `data/shim-differences.tsv`, or in
//! `data/page-guard-differences.tsv` for that guard.

mod common;

const AREAS: [&str; 4] = ["memory.", "pool", "pointer.", "graph."];

fn differs(guard: &str, lists: &[&str]) {
    let mut guarded = common::shimmed();
    for area in AREAS {
        guarded.args(["--filter", area]);
    }
    guarded.env("WMSHIM_GUARD", guard);
    let guarded = common::answers_as_bare(guarded, guard, lists);
    let reports = guarded.cases.iter().filter(|case| case.stderr.contains("a write past the end"));
    let reports: Vec<&str> = reports.map(|case| &*case.case).collect();
    assert!(reports.is_empty(), "the guard accuses {reports:?}");
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
