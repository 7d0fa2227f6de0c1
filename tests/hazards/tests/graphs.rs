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

/// Each block named by a captured copy or memset, and the one of a kernel, which may move.
#[test]
fn captured_copies_and_memsets_pin_their_blocks_alone() {
    let codes = [STAYS, STAYS, STAYS, MOVED, MOVED, MOVED, MOVED, MOVED];
    assert_eq!(numbers("captured"), codes);
}

/// The nodes of a child are the parent's: a change there names no graph.
#[test]
fn a_childs_memset_pins_its_blocks_until_the_parent_ends() {
    assert_eq!(numbers("child"), [STAYS, MOVED, STAYS, MOVED, MOVED]);
}

#[test]
fn a_clone_pins_what_its_origin_did() {
    assert_eq!(numbers("clone"), [STAYS, MOVED]);
}

#[test]
fn an_executable_graph_that_is_updated_pins_the_other_graphs_blocks() {
    assert_eq!(numbers("updated"), [MOVED, STAYS, MOVED]);
}

/// The graph names the first block to its end, and the executable one both.
#[test]
fn a_memset_that_is_changed_keeps_its_new_block() {
    assert_eq!(numbers("set"), [STAYS, STAYS, STAYS, MOVED, MOVED]);
}

#[test]
fn a_node_that_is_changed_pins_its_new_block_until_its_graph_ends() {
    assert_eq!(numbers("node"), [STAYS, STAYS, MOVED, MOVED]);
}

#[test]
fn a_block_that_is_named_on_the_host_stays_there() {
    assert_eq!(numbers("late"), [MOVED, STAYS, MOVED]);
}
