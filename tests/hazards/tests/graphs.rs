//! Hazard (wrong result): memory moves that a copy or a memset of a live graph names, so that the
//! driver makes it in a way that does not fit any more. Hazard (silent degradation): a graph keeps
//! other memory from moving, or keeps it after its end.

use hazards::{Host, Scratch, c, driver, places};

/// `CUDA_SUCCESS` and `CUDA_ERROR_NOT_PERMITTED`.
const MOVED: i64 = 0;
const STAYS: i64 = 800;

fn numbers(mode: &str) -> Vec<i64> {
    let scratch = Scratch::new();
    let text = |path: std::path::PathBuf| path.to_str().expect("a readable path").to_owned();
    let include = c::flag("-I", &places::workspace("shim/preload/include"));
    let program = c::program(&scratch, "graphs", &[&include, &text(places::shim())]);
    let image = text(places::workspace("kernels/compiled/diagnostics.ptx"));
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch));
    let outcome = host.args([image.as_str(), mode]).env("WMSHIM_MIGRATE", "on").run();
    outcome.expect_success().split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

#[test]
fn a_block_that_only_kernels_of_a_graph_use_moves() {
    assert_eq!(numbers("kernels"), [MOVED, 32]);
}

#[test]
fn a_block_that_a_copy_names_stays_while_its_executable_graph_lives() {
    assert_eq!(numbers("copies"), [STAYS, STAYS, MOVED, MOVED, MOVED]);
}

/// The graph names the first block to its end, and the executable one the second.
#[test]
fn a_copy_that_is_changed_keeps_its_new_block() {
    assert_eq!(numbers("changed"), [STAYS, STAYS, STAYS, MOVED, MOVED]);
}

/// Hazard (API conformance): the look whether the GPU is idle spoils the capture.
#[test]
fn during_a_capture_nothing_moves_and_the_capture_goes_on() {
    assert_eq!(numbers("capturing"), [1, MOVED]);
}

#[test]
fn a_graph_that_kernels_may_launch_pins_all_memory_until_its_end() {
    assert_eq!(numbers("opaque"), [STAYS, MOVED]);
}
