//! Hazard (data race): the device's part in a migration, on the simulated driver with its race
//! detection.
//!
//! Hazards: memory that is unmapped under work, or under the copy that moves it; bytes that are not what they were; a move that waits for work that never
//! ends by itself.

mod support;

use std::process::Output;

use hazards::places;
use serde_json::Value;
use support::{Scratch, stderr, stdout, wmctl};

fn bench(scratch: &Scratch, arguments: &[&str]) -> Output {
    let driver = places::simulated_driver();
    let mut command = wmctl(scratch);
    command.env("WMSHIM_DRIVER", driver).env("SIMCUDA_RACES", "1").env("SIMCUDA_MEMORY", "2GiB");
    command.args(["bench", "moves", "--mib", "24", "--rounds", "2"]).args(arguments);
    command.output().expect("ran")
}

#[test]
fn a_block_goes_out_and_comes_back_without_a_race() {
    let scratch = Scratch::new("moves");
    let output = bench(&scratch, &["--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let answer: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let ways: Vec<_> =
        answer["rows"].as_array().expect("rows").iter().map(|row| row["way"].as_str()).collect();
    let round = ["out", "in", "out, together", "in, together", "both ways, each"].map(Some);
    assert_eq!(ways, [round, round].concat());
    let moves = answer["rows"][0]["moves"].as_u64().expect("a count");
    assert!(moves > 1, "the block lies in several handles");
}

#[test]
fn people_get_a_table() {
    let scratch = Scratch::new("moves-table");
    let output = bench(&scratch, &[]);
    assert!(output.status.success() && stdout(&output).contains("us a move"), "{}", stderr(&output));
}
