//! Hazard (API conformance): a recording of launches changes an answer of the driver. The recorder
//! asks the driver about functions, reads launch arguments, and follows code that is unloaded.
//!
//! The cases that launch, capture and unload, over the simulated driver, bare and under the shim
//! with a recording.

mod common;

use conformance::compare::{self, Accepted, Comparison};

const AREAS: [&str; 6] = ["module.", "graph", "order_capture.", "order_green.", "context.", "faults."];

#[test]
fn recorded_launches_change_no_answer() {
    let driver = common::built("libsimcuda.so", "simcuda");
    let (mut bare, mut recorded) = (common::suite(), common::suite());
    for area in AREAS {
        bare.args(["--filter", area]);
        recorded.args(["--filter", area]);
    }
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("recorded-launches");
    let _absent_the_first_time = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    bare.arg("--driver").arg(&driver);
    recorded.env("LD_PRELOAD", common::built("libwmshim.so", "wmshim")).env("WMSHIM_DRIVER", &driver);
    recorded.env("WMSHIM_STATS_SOCKET", "off").env("WMSHIM_TRACE_LAUNCHES", "on");
    recorded.env("WMSHIM_TRACE", folder.join("%p-%d.gz"));
    let (_, bare) = common::document(bare, "bare-recorded.json");
    let (output, recorded) = common::document(recorded, "recorded.json");
    let accepted = Accepted::parse(include_str!("../data/shim-differences.tsv")).expect("a good list");
    let differences = compare::compare(&bare, &recorded, Comparison { machine: true });
    let left = accepted.remove_from(differences);
    assert!(left.is_empty(), "bare | recorded\n{}\n{}", compare::table(&left), common::said(&output));
    let files = std::fs::read_dir(&folder).expect("the folder").count();
    assert!(files > 20, "{files} processes were recorded");
}
