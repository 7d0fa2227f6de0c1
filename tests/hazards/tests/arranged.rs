//! Hazard (silent degradation): what was allocated first has the device, and what is used most is
//! read from the host in each step. Hazard (thrashing): blocks change places again and again.

use hazards::{Host, Scratch, c, driver, places};

/// The two numbers that a program prints on a device with a limit.
fn numbers(program: &str, limit: &str, migrate: &str) -> [u64; 2] {
    <[u64; 2]>::try_from(printed(program, &[], limit, migrate)).expect("two numbers")
}

fn printed(program: &str, words: &[&str], limit: &str, migrate: &str) -> Vec<u64> {
    let scratch = Scratch::new();
    let text = |path: std::path::PathBuf| path.to_str().expect("a readable path").to_owned();
    let include = c::flag("-I", &places::workspace("shim/preload/include"));
    let program = c::program(&scratch, program, &[&include, &text(places::shim())]);
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch));
    let host = host.args(words).args([text(places::workspace("kernels/compiled/diagnostics.ptx"))]);
    let host = host.env("WMSHIM_MIGRATE", migrate).env("WMSHIM_DEVICE_LIMIT", limit);
    let outcome = host.env("WMSHIM_HEADROOM", "0").run();
    outcome.expect_success().split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

#[test]
fn what_is_used_most_comes_to_the_device_once_at_the_programs_own_waits() {
    // One trial has the blocks where they were allocated. Other tests beside it may make trials
    // look unlike, so that there are more: not twice in a row.
    let runs: Vec<_> = std::iter::repeat_with(|| numbers("arranged", "256MiB", "auto")).take(2).collect();
    assert!(runs.iter().any(|[came, moved]| *came == 64 && *moved <= 3 * 128), "{runs:?}");
}

/// Hazard (silent degradation): small operands that a program makes from step to step lie on the
/// host, where each kernel that reads them is slow, and cannot come back.
#[test]
fn small_pieces_find_room_on_a_device_that_large_ones_have_filled() {
    let [large, all] = numbers("small_pieces", "1GiB", "off");
    assert!(large > 0 && all > large + 32, "{large} of large ones, {all} of all");
    for migrate in ["auto", "on"] {
        let [large, all] = numbers("small_pieces", "1GiB", migrate);
        // The first ones come before anything may move: moves have a share of the time.
        assert!(
            (large > 0 || migrate == "on") && all < large + 8,
            "{migrate}: {large} of large ones, {all} of all"
        );
    }
}

/// Hazard (silent degradation): most of a tensor stays on the host, since a launch names its begin
/// alone, although PyTorch's allocator has told how large it is.
#[test]
fn a_tensor_of_which_pytorch_tells_comes_whole() {
    let came = |words: &[&str]| printed("told", words, "176MiB", "on")[0];
    let (guessed, told) = (came(&[]), came(&["--"]));
    assert!(guessed <= 64 && told >= 112, "{guessed} MiB, and {told}");
}
