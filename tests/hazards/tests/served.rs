//! Hazard (silent degradation): after an unusual event the library forwards everything to the
//! driver. The program goes on, and its memory is no longer stitched.

use hazards::{Host, Scratch, c, driver};
use serde_json::Value;

/// Live bytes by the library's own account after the program `c/served.c` has done `first` and
/// allocated 8 MiB.
fn live_after(first: &str) -> Option<u64> {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "served");
    let outcome = Host::shimmed(program, &scratch, &driver).args([first]).run();
    let stats: Value = serde_json::from_str(outcome.expect_success()).expect("JSON");
    stats["devices"][0]["tiers"]["device"]["live_bytes"].as_u64()
}

const TAKEN: Option<u64> = Some(8 << 20);

#[test]
fn at_first() {
    assert_eq!(live_after("nothing"), TAKEN);
}

#[test]
fn after_a_context_that_ended_in_a_capture() {
    assert_eq!(live_after("capture"), TAKEN);
}

#[test]
fn after_the_chosen_pool_ended() {
    assert_eq!(live_after("pool"), TAKEN);
}

#[test]
fn after_a_reset() {
    assert_eq!(live_after("reset"), TAKEN);
}

#[test]
fn after_a_destruction_that_the_driver_refused() {
    assert_eq!(live_after("refused"), TAKEN);
}
