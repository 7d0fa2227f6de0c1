//! Hazard (data race): the device's part in sharing memory, by `bench shares` on the simulated
//! driver with its race detection.
//!
//! Hazard (wrong result): a write through one block changes the contents of the other.

mod support;

use hazards::Scratch;
use support::{answer, bench};

#[test]
fn two_blocks_share_their_memory_and_get_their_own_again() {
    let scratch = Scratch::new();
    let mut command = bench(&scratch);
    command.env("SIMCUDA_RACES", "1").env("SIMCUDA_MEMORY", "2GiB");
    command.args(["shares", "--mib", "24", "--rounds", "2", "--json"]);
    let answer = answer(&command.output().expect("ran"));
    assert_eq!(answer["rows"].as_array().expect("rows").len(), 2 * 4);
    assert_eq!(answer["rows"][0]["chunks"], 12);
}
