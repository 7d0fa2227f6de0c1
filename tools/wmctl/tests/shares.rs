//! Hazard (data race): the device's part in sharing memory, on the simulated driver with its race
//! detection.
//!
//! Hazards: shared memory that can be written, or whose writer changes what others read; memory that is unmapped under work.

mod support;

use hazards::places;
use serde_json::Value;
use support::{Scratch, stderr, stdout, wmctl};

#[test]
fn two_blocks_share_their_memory_and_part() {
    let scratch = Scratch::new("shares");
    let driver = places::simulated_driver();
    let mut command = wmctl(&scratch);
    command.env("WMSHIM_DRIVER", driver).env("SIMCUDA_RACES", "1").env("SIMCUDA_MEMORY", "2GiB");
    command.args(["bench", "shares", "--mib", "24", "--rounds", "2", "--json"]);
    let output = command.output().expect("ran");
    assert!(output.status.success(), "{}", stderr(&output));
    let answer: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(answer["rows"].as_array().expect("rows").len(), 2 * 4);
    assert_eq!(answer["rows"][0]["chunks"], 12);
}
