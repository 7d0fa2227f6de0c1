//! Hazard (use after free): two owners have one block, on the simulated driver with its work
//! reordered. There is a short run for each way in which memory is short; long runs are `cargo
//! xtask stress`.
//!
//! The program is asked to find nothing, and after it the library's books must agree: nothing live,
//! as many frees as allocations, no call that the shim stepped aside for. That it *can* find
//! something is tested too.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hazards::places::{self, built};
use hazards::said;
use serde_json::Value;

const STRESS: &str = env!("CARGO_BIN_EXE_stress");
/// Small devices, so that few operations fill them.
const MEMORY: &str = "192MiB";

/// A folder of this test's own.
fn folder(test: &str) -> PathBuf {
    places::emptied(Path::new(env!("CARGO_TARGET_TMPDIR")).join(test))
}

/// Few operations on large blocks, so that a short run fills the devices.
fn arguments(command: &mut Command, seed: u64, more: &[&str]) {
    let seed = seed.to_string();
    command.args(["--json", "--progress", "0", "--operations", "2500", "--phase", "384", "--part", "12"]);
    command.args(["--seed", &seed]);
    command.args(more);
    let settings = [("SIMCUDA_SEED", seed.as_str()), ("SIMCUDA_MEMORY", MEMORY), ("SIMCUDA_DEVICES", "2")];
    command.envs(settings);
}

fn run(mut command: Command) -> Output {
    command.output().expect("the program starts")
}

/// The driver alone: the program's calls must be legal, and the simulator right.
fn bare(test: &str, seed: u64, more: &[&str]) -> Output {
    let folder = folder(test);
    symlink(built("libsimcuda.so"), folder.join("libcuda.so.1")).expect("a link");
    let mut command = Command::new(STRESS);
    arguments(&mut command, seed, more);
    command.env("LD_LIBRARY_PATH", folder);
    run(command)
}

/// Under the shim, with settings; the library's statistics at the end are checked. Returns the
/// value of `counter`.
fn shimmed(test: &str, seed: u64, more: &[&str], settings: &[(&str, &str)], counter: &str) -> u64 {
    let mut command = Command::new(built("wmctl"));
    command.args(["run", "--stats", "--json", "--quiet", "--", STRESS]);
    arguments(&mut command, seed, more);
    let places = [("WMSHIM_DRIVER", built("libsimcuda.so")), ("WMSHIM_STATS_DIR", folder(test))];
    // Refusals of memory are part of the run, and a line each.
    command.envs(places).env("WMSHIM_LOG", "error").envs(settings.iter().copied());
    let output = run(command);
    assert!(output.status.success(), "{}", said(&output));
    let document = String::from_utf8_lossy(&output.stderr);
    let document = document.lines().find(|line| line.starts_with('{')).expect("statistics");
    let statistics: Value = serde_json::from_str(document).expect("JSON");
    let devices = consistent(&statistics["processes"][0]);
    devices.iter().map(|device| device["counters"][counter].as_u64().expect("a count")).sum()
}

/// The books of a program that gave everything back; its devices.
fn consistent(process: &Value) -> &[Value] {
    assert_eq!(process["fail_open"]["count"], 0, "{process}");
    let devices = process["devices"].as_array().expect("devices");
    assert!(!devices.is_empty(), "{process}");
    for device in devices {
        assert_eq!(device["audit"], "ok");
        let live = ["device", "peer", "host"].map(|tier| device["tiers"][tier]["live_bytes"].as_u64());
        assert_eq!((live, &device["quarantined"]), ([Some(0); 3], &Value::from(0)), "{device}");
        let counters = &device["counters"];
        assert_eq!(counters["allocations"], counters["frees"], "{device}");
    }
    assert_eq!(refused(process), [""; 0], "{process}");
    devices
}

/// Calls that give something back and were refused by the driver. A range that the library did not
/// give back yet, as another thread was about to unmap something there, is none: it is tried again,
/// and nothing is left of it in the end.
fn refused(process: &Value) -> Vec<&str> {
    let calls = process["driver_calls"].as_array().expect("calls of the driver");
    let names = calls.iter().filter(|call| call["errors"] != 0).filter_map(|call| call["name"].as_str());
    names.filter(|name| ["cuMemUnmap", "cuMemRelease", "cuMemAddressFree"].contains(name)).collect()
}

#[test]
fn the_simulator_alone() {
    let output = bare("bare", 1, &["--devices", "2"]);
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_stranger_in_a_block_is_found() {
    let output = bare("sabotage", 2, &["--sabotage", "50"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("of a block of 0x"), "{}", said(&output));
}

#[test]
fn with_room_on_the_host() {
    let overflows = [3, 4, 5].map(|seed| shimmed("host", seed, &["--peak", "1.6"], &[], "overflows"));
    assert!(overflows.iter().any(|count| *count > 0), "the device was never full");
}

#[test]
fn within_a_limit_and_with_few_streams() {
    let settings = [("WMSHIM_DEVICE_LIMIT", "96MiB")];
    let options = &["--streams", "3", "--peak", "1.5"];
    let stitched = |seed| shimmed("limit", seed, options, &settings, "stitches") > 0;
    assert!([6, 9, 10, 11].into_iter().any(stitched), "no block was put together");
}

#[test]
fn with_refusals() {
    let settings = [("WMSHIM_OVERFLOW", "off")];
    // How threads take turns decides when the device is full.
    let full = |seed| shimmed("refusals", seed, &["--peak", "2"], &settings, "out_of_memory") > 0;
    assert!([7, 12, 13, 16].into_iter().any(full), "the device was never full");
}

#[test]
fn two_devices_that_lend_each_other_memory() {
    let settings = [("WMSHIM_OVERFLOW", "peer,host"), ("WMSHIM_DEVICE_LIMIT", "128MiB")];
    let more = ["--devices", "2", "--peak", "1.3"];
    let full = |seed| shimmed("devices", seed, &more, &settings, "overflows") > 0;
    assert!([8, 14, 15].into_iter().any(full), "the devices were never full");
}
