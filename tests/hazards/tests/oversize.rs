//! Hazard (process crash): a request above the device's size ends the process inside PyTorch with
//! a null pointer. Bare, PyTorch raises its out-of-memory error.
//!
//! An expandable segment has addresses for 1.125 times the device's memory. Bare, no request fills
//! them, because the device is full before; PyTorch does not check for the end of the addresses.
//! With host memory behind the device a request could fill them: a request that does not fit into a
//! segment must be refused as bare, and one that fits must succeed.

use hazards::{Host, Outcome, Scratch, c, driver, places};

/// The device; its segments have addresses for 360 MiB, which is 18 pieces.
const DEVICE: &str = "320MiB";

/// Requests in the order of the program, in parts of the device: those that fit into a segment, and
/// those that do not.
const FITTING: &[&str] = &["0.5", "1.0", "1.1", "1.125", "again"];
const OVERSIZE: &[&str] = &["1.2", "1.5", "3.0", "TiB", "most"];

fn start(variables: &[(&str, &str)], is_bare: bool) -> Outcome {
    run(&[], variables, is_bare)
}

fn run(arguments: &[&str], variables: &[(&str, &str)], is_bare: bool) -> Outcome {
    let scratch = Scratch::new();
    let library = c::library("grown", scratch.folder("torch").join("libc10_cuda.so"), &[]);
    let library = library.to_str().expect("a readable path");
    let simulated = driver::simulated(&scratch);
    let linked = if is_bare { simulated.join(driver::FULL_NAME) } else { places::shim() };
    let linked = linked.to_str().expect("a readable path");
    let program = c::program(&scratch, "oversize", &[library, linked]);
    let host = if is_bare {
        Host::bare(program).env("LD_LIBRARY_PATH", &simulated)
    } else {
        Host::shimmed(program, &scratch, &simulated)
    };
    let host = host.args(arguments).env("SIMCUDA_MEMORY", DEVICE).env("WMSHIM_HEADROOM", "0");
    variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run()
}

/// The answers, without the figures between them.
fn answers(outcome: &Outcome) -> Vec<String> {
    outcome.expect_success();
    outcome.stdout.lines().filter(|line| line.split(' ').count() == 4).map(str::to_owned).collect()
}

fn assert_answers(outcome: &Outcome) {
    for answer in &answers(outcome) {
        let words: Vec<_> = answer.split(' ').collect();
        let fits = FITTING.contains(&words[2]);
        assert!(fits || OVERSIZE.contains(&words[2]), "{answer}");
        assert_eq!(words[3], if fits { "given" } else { "refused" }, "{answer}\n{}", outcome.stdout);
    }
    assert_eq!(answers(outcome).iter().filter(|line| line.ends_with("refused")).count(), 4 * OVERSIZE.len());
}

#[test]
fn what_fits_into_a_segment_is_had_and_the_rest_is_refused() {
    for variables in [&[][..], &[("SIMCUDA_RACES", "1")], &[("WMSHIM_TORCH_PIECES", "release")]] {
        assert_answers(&start(variables, false));
    }
}

#[test]
fn a_device_that_is_limited_is_no_other() {
    assert_answers(&start(&[("WMSHIM_DEVICE_LIMIT", "100MiB")], false));
}

/// Hazard: the host is filled with memory for a request that is refused in the end.
#[test]
fn a_request_that_fits_nowhere_takes_nothing_of_the_host() {
    let outcome = run(&["too much"], &[], false);
    assert_eq!(answers(&outcome).len(), 3);
    assert!(answers(&outcome).iter().all(|line| line.ends_with("refused")), "{}", outcome.stdout);
    let line = outcome.stdout.lines().find_map(|line| line.strip_prefix("refused ")).expect("figures");
    let stats: serde_json::Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(stats["devices"][0]["pieces"]["overflows"], 0);
}

#[test]
fn what_the_tiers_cannot_hold_is_refused_as_without_us() {
    let bare = answers(&start(&[], true));
    // With a fragmented cache a tensor of the device's size has no room beside the cached memory.
    assert_eq!(bare.iter().filter(|line| line.ends_with("given")).count(), 2 * 3 + 2 * 2, "{bare:?}");
    for variable in [("WMSHIM_OVERFLOW", "off"), ("WMSHIM_HOST_LIMIT", "0")] {
        assert_eq!(answers(&start(&[variable], false)), bare, "{variable:?}");
    }
}
