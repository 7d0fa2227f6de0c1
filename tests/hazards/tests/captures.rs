//! Hazard (API conformance): a call that the library makes in another thread invalidates a
//! capture, or crashes beside one. With the driver alone the capture would live.
//!
//! The simulated driver refuses the same calls as NVIDIA's during a capture, and the capture is
//! then lost: event queries, waits, and stream-ordered allocations and frees in the global mode,
//! and events and waits of a whole context in every mode.

use hazards::{Host, Scratch, c, driver};

/// The number of broken captures, and of refused calls beside them.
#[derive(Debug)]
struct Captures {
    broken: u64,
    refused: u64,
}

fn captures(host: Host, mode: &str, calls: &str, count: u64) -> Captures {
    let outcome = host.args([mode, calls, &count.to_string()]).env("SIMCUDA_MEMORY", "256MiB").run();
    let said = outcome.expect_success();
    let figure = |name: &str| {
        let mut words = said.split(' ').skip_while(|word| *word != name).skip(1);
        words.next().and_then(|word| word.parse().ok()).expect("a figure")
    };
    assert_eq!(figure("captures"), count);
    Captures { broken: figure("broken"), refused: figure("refused") }
}

/// The same program bare and under the library.
fn both(mode: &str, calls: &str, count: u64, variables: &[(&str, &str)]) -> [Captures; 2] {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "captures");
    let bare = Host::bare(&program).env("LD_LIBRARY_PATH", &driver);
    let shimmed = Host::shimmed(&program, &scratch, &driver);
    let shimmed = variables.iter().fold(shimmed, |host, (name, value)| host.env(name, value));
    [bare, shimmed].map(|host| captures(host, mode, calls, count))
}

/// Captures of one program.
const COUNT: u64 = 100;

#[test]
fn allocations_in_other_streams_spoil_no_capture() {
    let [bare, shimmed] = both("global", "async", 3 * COUNT, &[]);
    assert!(
        bare.broken > COUNT / 2 && bare.refused > 0,
        "the driver refuses them, and captures are lost: {bare:?}"
    );
    assert_eq!((shimmed.broken, shimmed.refused), (0, 0), "each request is met without such a call");
}

#[test]
fn plain_allocations_spoil_no_more_captures_than_the_drivers() {
    let [bare, shimmed] = both("global", "plain", COUNT, &[]);
    assert!(shimmed.broken <= bare.broken, "{shimmed:?} {bare:?}");
}

#[test]
fn what_no_capture_forbids_spoils_none() {
    for mode in ["global", "local", "relaxed"] {
        let [bare, shimmed] = both(mode, "safe", COUNT, &[]);
        assert_eq!([bare, shimmed].map(|it| (it.broken, it.refused)), [(0, 0); 2], "{mode}");
    }
}

/// Captures in these modes allow other threads' calls.
#[test]
fn other_threads_spoil_no_capture_that_does_not_mind_them() {
    for (mode, calls) in [("local", "async"), ("local", "plain"), ("relaxed", "async"), ("relaxed", "plain")]
    {
        let [bare, shimmed] = both(mode, calls, COUNT, &[]);
        assert_eq!([bare, shimmed].map(|it| (it.broken, it.refused)), [(0, 0); 2], "{mode} {calls}");
    }
}

/// There was no earlier capture: calls that assume none may be in flight when it begins.
#[test]
fn nor_is_the_first_capture_of_a_process_spoilt() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "captures");
    // In each third run the others' blocks do not all fit: before memory moves, all contexts are
    // asked for their work.
    let moves = [("WMSHIM_MIGRATE", "on"), ("WMSHIM_DEVICE_LIMIT", "24MiB"), ("WMSHIM_HEADROOM", "0")];
    for run in 0..60 {
        let variables = if run % 3 == 0 { &moves[..] } else { &[] };
        let host = Host::shimmed(&program, &scratch, &driver);
        let host = variables.iter().fold(host, |host, (name, value)| host.env(name, value));
        assert_eq!(captures(host, "global", "async", 1).broken, 0, "run {run}, {variables:?}");
    }
}
