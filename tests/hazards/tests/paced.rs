//! Hazard (latency): a call that returns at once without the library waits for the GPU, for the
//! gate, or for memory that moves, so that a program misses its deadlines or gives up.
//!
//! The bounds on a single call are above those of the library (20 ms for a wait and at the gate,
//! 5 ms for a signal) by as much as a busy machine may keep a thread waiting; those on most calls
//! are not.

use hazards::pace::bounded;
use hazards::{Host, Outcome, Scratch, c, driver, places};

fn paced(arguments: &[&str], migrate: &str, limit: &str) -> Outcome {
    paced_with(arguments, &[("WMSHIM_MIGRATE", migrate), ("WMSHIM_DEVICE_LIMIT", limit)])
}

fn paced_with(arguments: &[&str], variables: &[(&str, &str)]) -> Outcome {
    let scratch = Scratch::new();
    let text = |path: std::path::PathBuf| path.to_str().expect("a readable path").to_owned();
    let include = c::flag("-I", &places::workspace("shim/preload/include"));
    let program = c::program(&scratch, "paced", &[&include, &text(places::shim()), "-lpthread"]);
    let image = text(places::workspace("kernels/compiled/diagnostics.ptx"));
    let host = Host::shimmed(program, &scratch, &driver::simulated(&scratch));
    let host = host.args([image.as_str()]).args(arguments).env("WMSHIM_HEADROOM", "0");
    let host = host.env("WMSHIM_LOG", "debug");
    variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run()
}

/// With and without fingerprints that do not pay here: the simulated GPU is as slow as its link.
fn with_kept_copies(mode: &str) -> [(&'static str, Outcome); 3] {
    ["off", "auto", "on"].map(|kept| {
        let shortage =
            [("WMSHIM_MIGRATE", "on"), ("WMSHIM_DEVICE_LIMIT", "512MiB"), ("WMSHIM_KEPT_COPIES", kept)];
        (kept, paced_with(&[mode], &shortage))
    })
}

fn numbers(outcome: &Outcome) -> Vec<u64> {
    outcome.expect_success().split_whitespace().map(|word| word.parse().expect("a number")).collect()
}

/// The slowest call in microseconds of each round, in order of length, and the holds that ran out.
fn slowest_of_rounds(how: &str, call: &str) -> (Vec<u64>, u64) {
    let mut slowest = numbers(&paced(&["hold", how, call], "on", "192MiB"));
    let expired = slowest.pop().expect("a number");
    slowest.sort_unstable();
    (slowest, expired)
}

const CALLS: [&str; 3] = ["launch", "allocation", "async"];

/// The kernel is not known to wait for the thread: calls wait as long as for any other work.
#[test]
fn a_thread_for_which_a_kernel_waits_is_not_held_up_for_longer_than_a_wait() {
    bounded(|| {
        for call in CALLS {
            let (slowest, expired) = slowest_of_rounds("kernel", call);
            assert_eq!(expired, 0, "{call}: {slowest:?}");
            assert!(slowest[4] < 25_000 && slowest[7] < 200_000, "{call}: {slowest:?}");
        }
    });
}

/// Of a word and of a host function it is known.
#[test]
fn while_the_host_holds_a_stream_no_call_waits() {
    bounded(|| {
        for how in ["word", "function"] {
            for call in CALLS {
                let (slowest, expired) = slowest_of_rounds(how, call);
                assert_eq!(expired, 0, "{how}, {call}: {slowest:?}");
                assert!(slowest[4] < 10_000 && slowest[7] < 200_000, "{how}, {call}: {slowest:?}");
            }
        }
    });
}

/// Of some runs one has to be below the bounds. Waits take 20 ms each and have a share of some per
/// cent of the time, so about one request of a hundred waits.
#[test]
fn requests_beside_long_kernels_are_served_meanwhile() {
    bounded(|| {
        let run = || {
            let [count, median, percentile, slowest] = numbers(&paced(&["background"], "on", "256MiB"))[..]
            else {
                panic!("four numbers")
            };
            assert!(count > 500 && median < 10_000, "{count} requests, {median} us");
            assert!(slowest < 200_000, "{slowest} us");
            percentile
        };
        let percentile = (0..4).map(|_| run()).find(|percentile| *percentile < 20_000).unwrap_or_else(run);
        assert!(percentile < 20_000, "{percentile} us");
    });
}

/// Hazard (latency): while another thread's call is inside for long, the gate is closed again and
/// again, for 2 ms each time, and each launch tries that for as long as a wait may take.
#[test]
fn launches_beside_a_call_that_is_inside_for_long_are_made_meanwhile() {
    bounded(|| {
        let variables =
            [("WMSHIM_MIGRATE", "on"), ("WMSHIM_DEVICE_LIMIT", "192MiB"), ("SIMCUDA_HOST_MAKING", "200MB/s")];
        let [count, percentile, slowest, on_host] = numbers(&paced_with(&["inside"], &variables))[..] else {
            panic!("four numbers")
        };
        assert!(on_host >= 192, "{on_host} MiB: all fits");
        assert!(
            count > 500 && percentile < 10_000 && slowest < 200_000,
            "{count}, {percentile} us, {slowest} us"
        );
    });
}

/// Hazard (latency): the mover closes the gate again before the waiting thread is awake.
#[test]
fn a_thread_beside_a_move_waits_no_longer_than_a_slice() {
    bounded(|| {
        for (kept, outcome) in with_kept_copies("starve") {
            let mut slowest = numbers(&outcome);
            assert!(slowest.pop() >= Some(400), "MiB moved");
            slowest.sort_unstable();
            assert!(slowest[0] < 20_000 && slowest[2] < 60_000, "{kept}: {slowest:?} us");
        }
    });
}

/// The first number of a mode that moves memory a few times; of some runs the first that is below
/// 25 ms and in which the memory moved, else the last: the machine may be busy with others. Only
/// the first move makes memory of the host: it takes 35 ms for a handle.
fn while_memory_is_made(mode: &str) -> u64 {
    let slow =
        [("WMSHIM_MIGRATE", "on"), ("WMSHIM_DEVICE_LIMIT", "512MiB"), ("SIMCUDA_HOST_MAKING", "60MB/s")];
    let run = || {
        let numbers = numbers(&paced_with(&[mode], &slow));
        (numbers[0], *numbers.last().expect("the MiB that moved"))
    };
    let is_good = |(slowest, moved): &(u64, u64)| *slowest < 25_000 && *moved >= 400;
    let (slowest, moved) = (0..4).map(|_| run()).find(is_good).unwrap_or_else(run);
    assert!(moved >= 400, "{mode}: {moved} MiB moved, and {slowest} us");
    slowest
}

/// Hazard (latency): a thread waits at the gate until memory of the host is made.
#[test]
fn no_thread_waits_at_the_gate_for_memory_to_be_made() {
    bounded(|| {
        let slowest = while_memory_is_made("starve");
        assert!(slowest < 25_000, "{slowest} us");
    });
}

/// Hazard (latency): a signal waits for the same.
#[test]
fn no_signal_waits_for_memory_to_be_made() {
    bounded(|| {
        let gap = while_memory_is_made("ticks");
        assert!(gap > 0 && gap < 25_000, "{gap} us between ticks of 10 ms");
    });
}

#[test]
fn a_host_wait_costs_the_same_while_another_stream_is_busy() {
    bounded(|| {
        let median = |migrate| numbers(&paced(&["waits"], migrate, "256MiB"))[0];
        let [off, on] = ["off", "on"].map(median);
        assert!(on < 400 || on < 4 * off, "{on} us with moves, {off} without");
    });
}

/// The making of memory of the host is a call of the driver, and the first moves need it.
#[test]
fn signals_are_taken_while_memory_moves() {
    bounded(|| {
        for (kept, outcome) in with_kept_copies("ticks") {
            let mut gaps = numbers(&outcome);
            assert!(gaps.pop() >= Some(400), "MiB moved");
            // 0: the allocation took less than two ticks.
            gaps.retain(|gap| *gap > 0);
            gaps.sort_unstable();
            let [shortest, median] = [0, gaps.len() / 2].map(|at| gaps.get(at).copied().unwrap_or(0));
            assert!(shortest < 20_000 && median < 40_000, "{kept}: {gaps:?} us between ticks of 10 ms");
        }
    });
}

/// Hazard (latency): room is waited for that cannot suffice.
#[test]
fn a_call_that_cannot_succeed_fails_at_once() {
    bounded(|| {
        let time = || match numbers(&paced(&["oversize"], "on", "256MiB"))[..] {
            [2, time] => time,
            ref other => panic!("{other:?}"),
        };
        // One of three at least: other processes use the cores, too.
        assert!((0..3).any(|_| time() < 20_000), "20 ms or more in each of three runs");
    });
}

/// Work of the thread beside other work of it: at most 1.2 times as much.
fn is_no_more(work: u64, other: u64) -> bool {
    5 * work <= 6 * other
}

/// Hazard (latency): each launch is recorded for the rest of the process. Of three runs at most the
/// least counts, since other processes use the caches, too.
#[test]
fn launches_are_not_recorded_any_more_when_a_shortage_has_passed() {
    let (mut least_before, mut least_after) = (u64::MAX, u64::MAX);
    let is_seen = (0..3).any(|_| {
        let outcome = paced(&["after"], "on", "256MiB");
        let [before, after, away, moved] = numbers(&outcome)[..] else { panic!("four numbers") };
        assert!(away == 0 && moved > 0, "{away} MiB on the host, {moved} moved");
        let passed = outcome.stderr.matches("has passed").count();
        assert_eq!(passed, 1, "{}", outcome.stderr);
        (least_before, least_after) = (least_before.min(before), least_after.min(after));
        is_no_more(least_after, least_before)
    });
    assert!(is_seen, "{least_before} ns a launch before, {least_after} after");
}

/// Hazard (silent degradation): what was evicted for a moment stays on the host for the rest of
/// the process, since a capture pins it there.
#[test]
fn what_was_evicted_comes_back_before_memory_is_pinned() {
    assert_eq!(numbers(&paced(&["latch"], "on", "256MiB")), [32, 0]);
}

/// Hazard (latency): a stop, or a move, looks at each block of the program. With the limits the two
/// large blocks fit, and a third one does not.
#[test]
fn a_launch_and_a_stop_cost_the_same_beside_many_blocks() {
    let beside = |count, limit| {
        let [launch, stop, moves] = numbers(&paced(&["many", count], "on", limit))[..] else {
            panic!("three numbers")
        };
        assert!(moves >= 8, "{moves} moves beside {count} blocks");
        [launch, stop]
    };
    // The least of five runs at most, in turn: other processes use the caches, too.
    let least = |a: [u64; 2], b: [u64; 2]| [a[0].min(b[0]), a[1].min(b[1])];
    let (mut few, mut many) = ([u64::MAX; 2], [u64::MAX; 2]);
    let is_seen = (0..5).any(|_| {
        (few, many) = (least(few, beside("100", "80MiB")), least(many, beside("100000", "129MiB")));
        (0..2).all(|at| is_no_more(many[at], few[at]))
    });
    assert!(is_seen, "{few:?} beside 100, {many:?} beside 100,000");
}
