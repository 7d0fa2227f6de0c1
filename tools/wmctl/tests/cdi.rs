//! Hazard (error handling): a container engine refuses the specification, or every container of a
//! node gets a setting that the library does not understand.

mod support;

use hazards::places;
use serde_json::{Value, json};
use support::{Scratch, stderr, wmctl};

#[test]
fn the_specification_mounts_the_library_and_preloads_it() {
    let scratch = Scratch::new("cdi");
    let library = places::shim().canonicalize().expect("it is built");
    let settings = ["--set", "WMSHIM_DEVICE_LIMIT=48GiB", "--set", "WMSHIM_LOG=info"];
    let output = wmctl(&scratch).env("WMSHIM_LIB", &library).arg("cdi").args(settings).output().expect("ran");
    let found: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
    assert_eq!(found["kind"], "wmshim.dev/memory");
    let mount = &found["containerEdits"]["mounts"][0];
    assert_eq!(mount["hostPath"].as_str(), library.parent().expect("a folder").to_str());
    let device = &found["devices"][0];
    assert_eq!(device["name"], "all");
    assert_eq!(
        device["containerEdits"]["env"],
        json!([
            format!("LD_PRELOAD={}/libwmshim.so", mount["containerPath"].as_str().expect("a path")),
            "WMSHIM_DEVICE_LIMIT=48GiB",
            "WMSHIM_LOG=info"
        ])
    );
}

#[test]
fn a_setting_that_the_library_does_not_know_is_refused() {
    let scratch = Scratch::new("cdi-bad");
    let mut command = wmctl(&scratch);
    let output =
        command.env("WMSHIM_LIB", places::shim()).args(["cdi", "--set", "WMSHIM_DEVICE_LIMIT=48"]).output();
    let output = output.expect("ran");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    assert!(stderr(&output).contains("WMSHIM_DEVICE_LIMIT"), "{}", stderr(&output));
}
