//! Hazard (process lifecycle): a thread is cancelled inside the library, where frames cannot be
//! unwound. A cancelled thread must end at a cancellation point of the program.

use hazards::{Host, Scratch, c, driver};

/// Runs the program, whose thread is cancelled, and returns the rest of its line.
fn run(words: &[&str], settings: &[(&str, &str)]) -> String {
    let scratch = Scratch::new();
    let program = c::cuda_program(&scratch, "cancelled");
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch)).args(words);
    let host = host.env("XDG_CACHE_HOME", scratch.path());
    let outcome = settings.iter().fold(host, |host, (name, value)| host.env(name, value)).run();
    let rest = outcome.expect_success().strip_prefix("returned 1, cancelled 1");
    rest.unwrap_or_else(|| panic!("{}", outcome.stdout)).to_owned()
}

/// Log lines are written by cancellation points.
#[test]
fn a_thread_is_not_cancelled_inside_the_library() {
    run(&[], &[("WMSHIM_LOG", "debug")]);
}

/// An allocation's work besides memory: it writes a file, and reads the limits of host memory.
#[test]
fn nor_where_frequent_calls_leave_memory() {
    let folder = Scratch::new();
    let trace = folder.path().join("trace-%p.bin");
    let trace = trace.to_str().expect("readable");
    run(&[], &[("WMSHIM_TRACE", trace), ("WMSHIM_LOG", "trace"), ("SIMCUDA_MEMORY", "64MiB")]);
}

#[test]
fn nor_while_it_copies_over_several_links() {
    let links = ("SIMCUDA_LINKS", "pcie=1GB/s,nvlink=20GB/s");
    let machine = std::process::id().to_string();
    run(
        &["copy"],
        &[
            ("WMSHIM_MULTIPATH", "0,1"),
            ("WMSHIM_MULTIPATH_MIN", "2MiB"),
            ("SIMCUDA_DEVICES", "2"),
            ("SIMCUDA_MACHINE", &machine),
            links,
        ],
    );
}

/// A request that finds no room may wait for the GPU, and for the gate: it sleeps, which is a
/// cancellation point. A gate that it has closed would stay closed.
#[test]
fn nor_while_memory_moves_for_its_request() {
    let links = ("SIMCUDA_LINKS", "pcie=400MB/s,nvlink=20GB/s");
    let moved =
        |migrate| run(&["scarce"], &[("WMSHIM_MIGRATE", migrate), ("WMSHIM_DEVICE_LIMIT", "48MiB"), links]);
    assert_eq!(["off", "on"].map(moved), [", moved 0", ", moved 1"]);
}
