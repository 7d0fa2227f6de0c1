//! Hazard (data race): the device's part in a migration, by `bench moves` on the simulated driver
//! with its race detection.
//!
//! Hazard (wrong result): a block's contents differ after a migration.
//! Hazard (deadlock): a migration waits for work that never ends by itself.

mod support;

use std::process::Output;

use hazards::Scratch;
use support::{answer, bench, stderr};

fn moves(arguments: &[&str]) -> Output {
    let scratch = Scratch::new();
    let mut command = bench(&scratch);
    command.env("SIMCUDA_RACES", "1").env("SIMCUDA_MEMORY", "2GiB");
    command.args(["moves", "--mib", "24", "--rounds", "2"]).args(arguments);
    command.output().expect("ran")
}

#[test]
fn a_block_goes_out_and_comes_back_without_a_race() {
    let answer = answer(&moves(&["--json"]));
    let rows = answer["rows"].as_array().expect("rows");
    let ways: Vec<_> = rows.iter().map(|row| row["way"].as_str()).collect();
    let round = ["out", "in", "out, together", "in, together", "both ways, each"].map(Some);
    assert_eq!(ways, [round, round].concat());
    assert!(rows[0]["moves"].as_u64() > Some(1), "the block lies in several handles");
}

#[test]
fn people_get_a_table() {
    let output = moves(&[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("us a move"), "{}", stderr(&output));
}
