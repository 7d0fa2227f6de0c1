//! Hazard (process lifecycle): a process crashes, hangs or prints at exit because a thread of the
//! library is inside the driver while the driver's exit handler runs.
//!
//! Programs that copy over several links end in each way at random moments. Links are slow, so that
//! threads of the library are then at work: they measure the links, open contexts, and move
//! pageable memory. `HAZARD_EXITS` is the number of exits (`cargo xtask stress` sets 2000),
//! `HAZARD_SEED` the first one's seed.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use hazards::{Host, Scratch, c, driver};

/// Exits of one test, if the environment sets no number.
const EXITS: u64 = 70;

/// Processes that run at once.
const CROWD: usize = 4;

const WAYS: [&str; 7] = ["return", "exit", "_exit", "quick_exit", "gone", "term", "handler"];

/// The work in flight when the process ends.
struct Situation {
    /// One in this many of the exits.
    part: u64,
    /// Blocks of 16 MiB.
    blocks: usize,
    variables: &'static [(&'static str, &'static str)],
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

/// Ends programs one after the other, several at a time. Returns the seeds of those that ended
/// wrongly, with their output.
fn end_all(situation: &Situation) {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "exits");
    let _copied = hazards::shim::alone(&scratch);
    let (first, exits) = (number("HAZARD_SEED", 1), number("HAZARD_EXITS", EXITS) / situation.part);
    let next = AtomicU64::new(first);
    let run = || {
        let mut wrong = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + exits {
                return wrong;
            }
            wrong.extend(end_one(situation, &scratch, &driver, &program, seed));
        }
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CROWD).map(|_| scope.spawn(run)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no program hangs")).collect()
    });
    assert!(wrong.is_empty(), "{} of {exits} exits:\n{}", wrong.len(), wrong.join("\n"));
}

/// The fault of one end.
fn end_one(
    situation: &Situation,
    scratch: &Scratch,
    driver: &Path,
    program: &Path,
    seed: u64,
) -> Option<String> {
    let way = WAYS[(seed % WAYS.len() as u64) as usize];
    // Every second one finds an earlier one's measurement, if there is one.
    let (cache, machine) =
        if seed.is_multiple_of(2) { ("kept".to_owned(), 0) } else { (format!("own-{seed}"), seed) };
    let host =
        Host::shimmed(program, scratch, driver).args([way, &seed.to_string(), &situation.blocks.to_string()]);
    let outcome = situation
        .variables
        .iter()
        .fold(host, |host, (name, value)| host.env(name, value))
        .env("WMSHIM_MULTIPATH_MIN", "2MiB")
        .env("XDG_CACHE_HOME", scratch.path().join(cache))
        .env("SIMCUDA_DEVICES", "2")
        .env("SIMCUDA_MACHINE", machine.to_string())
        .env("SIMCUDA_EXIT", "crash")
        .run();
    let expected = if way == "term" { (None, Some(libc::SIGTERM)) } else { (Some(7), None) };
    let end = (outcome.status.code(), outcome.status.signal());
    let is_right = end == expected && outcome.stderr.is_empty() && outcome.stdout.is_empty();
    (!is_right).then(|| format!("{way} {seed}: {end:?} {}{}", outcome.stdout, outcome.stderr))
}

#[test]
fn a_process_ends_while_its_links_are_measured() {
    let variables = &[("WMSHIM_MULTIPATH", "0,1"), ("SIMCUDA_LINKS", "pcie=2GB/s,nvlink=20GB/s")];
    end_all(&Situation { part: 1, blocks: 0, variables });
}

/// A call of the library's own thread takes half a second or more.
#[test]
fn a_process_ends_while_a_call_of_the_librarys_takes_long() {
    let variables = &[("WMSHIM_MULTIPATH", "0,1"), ("SIMCUDA_LINKS", "pcie=100MB/s,nvlink=1GB/s")];
    end_all(&Situation { part: 3, blocks: 0, variables });
}

/// Hazard: a handler that calls `exit` while the gate is closed or a lock is held by its thread
/// waits for itself.
fn terminate_all(variables: &[(&str, &str)]) {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "terminated");
    let first = number("HAZARD_SEED", 1);
    for seed in first..first + number("HAZARD_EXITS", 25) {
        let host = Host::shimmed(&program, &scratch, &driver)
            .args([seed.to_string()])
            .env("WMSHIM_BROKER", hazards::places::broker())
            .env("XDG_CACHE_HOME", scratch.path().join("cache"));
        let outcome = variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run();
        let end = (outcome.status.code(), outcome.status.signal());
        assert_eq!((end, outcome.stderr.as_str()), ((Some(7), None), ""), "seed {seed}");
    }
}

#[test]
fn a_handler_ends_the_process_while_memory_is_exchanged() {
    terminate_all(&[("WMSHIM_DEDUP", "on"), ("WMSHIM_DEDUP_SHARE", "50%")]);
}

#[test]
fn a_handler_ends_the_process_while_memory_moves() {
    let links = ("SIMCUDA_LINKS", "pcie=2GB/s,nvlink=20GB/s");
    terminate_all(&[
        ("WMSHIM_MIGRATE", "on"),
        ("WMSHIM_DEVICE_LIMIT", "40MiB"),
        ("WMSHIM_LOG", "off"),
        links,
    ]);
}

/// Bytes past the end of a block, variables, and a part of what is written at the exit.
type LastWords<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);

/// The line about memory that was made on the host, or that left its device later.
const LAY_ELSEWHERE: &str = "memory lay elsewhere than on its device: of device 0";

/// Hazard (deadlock): a handler of a signal has interrupted the allocator and calls `exit`, and the
/// exit allocates. What the library writes at the exit is written all the same.
#[test]
fn the_exit_allocates_nothing_whatever_it_has_to_say() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "last_lines");
    let trace = scratch.path().join("trace.gz").display().to_string();
    let links = [("WMSHIM_MULTIPATH", "0,1"), ("SIMCUDA_DEVICES", "2")];
    let cases: [LastWords<'_>; 7] = [
        ("0", &[], ""),
        ("0", &[("WMSHIM_DEVICE_LIMIT", "80MiB")], LAY_ELSEWHERE),
        ("0", &[("WMSHIM_DEVICE_LIMIT", "80MiB"), ("WMSHIM_MIGRATE", "on")], LAY_ELSEWHERE),
        ("400", &[("WMSHIM_GUARD", "canary")], "guard: a write past the end of block"),
        ("0", &[("WMSHIM_TRACE", &trace)], ""),
        ("0", &links, ""),
        ("0", &[("WMSHIM_STATS_AT_EXIT", "/dev/null/none")], ""),
    ];
    for (past, variables, last) in cases {
        let image = hazards::places::workspace("kernels/compiled/diagnostics.ptx");
        let host = Host::shimmed(&program, &scratch, &driver).args([image]).args(["10", past]);
        let outcome = variables.iter().fold(host, |host, (name, value)| host.env(name, value)).run();
        assert_eq!(outcome.status.code(), Some(7), "{variables:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(last), "{variables:?}: {}", outcome.stderr);
    }
    assert!(std::fs::metadata(&trace).is_ok_and(|trace| trace.len() > 100), "a recording");
}
