//! Hazard (API conformance): a recording of launches changes an answer of the driver. The recorder
//! queries functions, reads launch arguments, and follows unloaded code.
//!
//! The cases that launch, capture and unload, over the simulated driver, bare and under the shim
//! with a recording.

mod common;

const AREAS: [&str; 6] = ["module.", "graph", "order_capture.", "order_green.", "context.", "faults."];

#[test]
fn recorded_launches_change_no_answer() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("recorded-launches");
    let _absent_the_first_time = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut recorded = common::shimmed();
    for area in AREAS {
        recorded.args(["--filter", area]);
    }
    recorded.env("WMSHIM_TRACE_LAUNCHES", "on").env("WMSHIM_TRACE", folder.join("%p-%d.gz"));
    common::answers_as_bare(recorded, "recorded", &[include_str!("../data/shim-differences.tsv")]);
    let files = std::fs::read_dir(&folder).expect("the folder").count();
    assert!(files > 20, "{files} processes were recorded");
}
