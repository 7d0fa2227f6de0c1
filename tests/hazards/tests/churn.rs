//! Hazard (resource leak): a program that creates and destroys streams, threads, graphs or contexts
//! takes more memory or time for the last one than for the first.
//!
//! The simulated driver uses some bytes for destroyed objects, too: so each way also runs bare, and
//! the difference counts.

use hazards::{Host, Scratch, c, driver};
use serde_json::Value;

/// Enough rounds to reuse the device memory of the first part several times.
const ROUNDS: i64 = 2000;

/// The driver call that asks for the GPU's progress.
const QUESTION: &str = "cuEventQuery";

/// Questions for one request: about four streams that are behind, and about four that have ended.
/// As many are asked as the GPU is behind with, which depends on the machine's load; more would be
/// asked if streams that are over were never forgotten.
const QUESTIONS: i64 = 8;

/// The allowed growth of a run in its second half beyond that of the driver alone. A GPU that is
/// further behind has more objects in use, of the library's and of the driver's.
fn growth_allowed(bytes: i64) -> i64 {
    (320 << 10) + bytes / 16
}

/// Device memory that the program may hold at its end beyond its start, if the GPU was further
/// behind meanwhile: a few of two thousand blocks, and some handles.
fn in_flight(bytes: i64) -> i64 {
    (64 * bytes).max(4 << 20)
}

/// A look at the program after a part of its rounds.
struct Sample(Value);

impl Sample {
    fn resident(&self) -> i64 {
        self.0["resident"].as_i64().expect("bytes")
    }

    /// Device memory that is in use and not the library's: blocks of the driver's pools. While the
    /// GPU is behind, those that the program has freed are in use still.
    fn others(&self) -> i64 {
        self.0["used"].as_i64().expect("bytes") - self.held()
    }

    /// Device memory that the library holds: none before the first request.
    fn held(&self) -> i64 {
        self.0["stats"]["devices"][0]["tiers"]["device"]["reserved_bytes"].as_i64().unwrap_or(0)
    }

    /// Driver calls that the library has made, without questions for the GPU's progress.
    fn calls(&self) -> i64 {
        self.calls_of(|name| name != QUESTION)
    }

    /// Questions for the GPU's progress that the library has asked.
    fn questions(&self) -> i64 {
        self.calls_of(|name| name == QUESTION)
    }

    fn calls_of(&self, is_counted: impl Fn(&str) -> bool) -> i64 {
        let calls = self.0["stats"]["driver_calls"].as_array().expect("a list").iter();
        let counted = calls.filter(|call| is_counted(call["name"].as_str().expect("a name")));
        counted.filter_map(|call| call["count"].as_i64()).sum()
    }

    fn cpu(&self) -> i64 {
        self.0["cpu_ns"].as_i64().expect("nanoseconds")
    }
}

/// The output of `c/churn.c` after 1, 2, 5, 9 and 10 tenths of its rounds.
fn samples(host: Host, arguments: &[&str]) -> Vec<Sample> {
    let outcome = host.args(arguments).env("SIMCUDA_MEMORY", "2GiB").run();
    let said = outcome.expect_success().lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let samples: Vec<_> = said.map(Sample).collect();
    assert_eq!(samples.len(), 5, "{}", outcome.stdout);
    samples
}

/// The growth of host memory in the second half of the rounds.
fn growth(samples: &[Sample]) -> i64 {
    samples[4].resident() - samples[2].resident()
}

/// Does the driver's device memory return to what it was, as often as the GPU catches up? A block
/// that was never given back would be in all later samples.
fn is_given_back(samples: &[Sample], size: i64) -> bool {
    let early = samples[..2].iter().map(Sample::others).max();
    let late = samples[2..].iter().map(Sample::others).min();
    late.zip(early).is_some_and(|(late, early)| late <= early + growth_allowed(64 * size))
}

/// Destroys objects in this way, with blocks of this many bytes, in streams with these flags.
fn is_flat(way: &str, bytes: &str, flags: &str) {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "churn");
    let arguments = [way, &ROUNDS.to_string(), bytes, flags];
    let bare = samples(Host::bare(&program).env("LD_LIBRARY_PATH", &driver), &arguments);
    let shimmed = samples(Host::shimmed(&program, &scratch, &driver), &arguments);
    let size: i64 = bytes.parse().expect("bytes");
    let (mut ours, drivers) = (growth(&shimmed), growth(&bare).max(0));
    let allowed = drivers + growth_allowed(size);
    if ours > allowed {
        // The C library keeps memory of threads, more or less of it by their schedule. A leak is in
        // every run.
        ours = ours.min(growth(&samples(Host::shimmed(&program, &scratch, &driver), &arguments)));
    }
    assert!(ours <= allowed, "{way} {bytes}: {ours} bytes more, the driver alone {drivers}");
    let others = || [0, 1, 2, 3, 4].map(|at| shimmed[at].others());
    assert!(is_given_back(&shimmed, size), "{way} {bytes}: {:?} bytes of the driver's pools", others());
    let (early, late) = (shimmed[1].held(), shimmed[4].held());
    assert!(late <= early + in_flight(size), "{way} {bytes}: {early} bytes of the device, later {late}");
    let tenth = |end: usize, of: fn(&Sample) -> i64| of(&shimmed[end]) - of(&shimmed[end - 1]);
    let (early, late) = (tenth(1, Sample::calls), tenth(4, Sample::calls));
    assert!(late <= 2 * early + ROUNDS / 10, "{way} {bytes}: {early} calls of ours, later {late}");
    let (early, late) = (tenth(1, Sample::questions), tenth(4, Sample::questions));
    let allowed = (2 * early + ROUNDS / 10).max(QUESTIONS * ROUNDS / 10);
    assert!(late <= allowed, "{way} {bytes}: {early} questions of ours, later {late}");
    let (early, late) = (tenth(1, Sample::cpu), tenth(4, Sample::cpu));
    assert!(late <= 4 * early + 100_000_000, "{way} {bytes}: {early} ns, later {late}");
}

/// One test a way, with blocks of a few sizes: small ones share a mapping, large ones have their
/// own.
macro_rules! ways {
    ($($name:ident: $way:literal $([$bytes:literal $flags:literal])+;)+) => {$(
        #[test]
        fn $name() {
            $(is_flat($way, $bytes, $flags);)+
        }
    )+};
}

ways! {
    streams_that_nobody_waits_for: "streams" ["4096" "0"] ["4096" "1"] ["300000" "1"] ["8000000" "1"];
    streams_that_are_found_empty: "query" ["4096" "0"];
    streams_before_whose_last_free_a_copy_waits: "copy" ["4096" "0"];
    streams_behind_whose_last_free_a_copy_waits: "freecopy" ["4096" "0"];
    streams_that_are_empty: "idle" ["4096" "1"];
    streams_that_are_waited_for: "sync" ["4096" "0"] ["8000000" "0"];
    streams_that_an_event_ends: "eventsync" ["4096" "0"];
    streams_that_another_stream_waits_for: "join" ["4096" "0"];
    streams_that_their_context_is_waited_for_with: "context" ["4096" "0"];
    streams_whose_blocks_are_freed_in_the_default_stream: "elsewhere" ["4096" "0"];
    streams_that_last_and_are_found_empty: "lasting" ["4096" "0"];
    streams_beside_some_that_stand_still: "held" ["4096" "0"] ["4096" "1"];
    threads_with_work_in_their_own_streams: "threads" ["4096" "0"] ["8000000" "0"];
    threads_that_wait_for_their_own_streams: "waiting" ["4096" "0"];
    pools: "pools" ["4096" "0"];
    graphs_with_memory: "graphs" ["4096" "0"];
    contexts: "contexts" ["4096" "0"];
    resets_of_the_primary_context: "resets" ["4096" "0"] ["8000000" "0"];
    releases_of_the_primary_context: "releases" ["4096" "0"];
}
