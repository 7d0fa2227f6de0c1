//! Hazard (stream order): the allocator orders less, or waits for more, than the driver does, or
//! the oracle misses that it does.
//!
//! Bounded runs on the simulated driver with its work reordered and a check for races. The driver
//! alone must be right in every program: that shows that the generator draws only legal ones. Then
//! the library is held to the same programs. Long runs are `cargo xtask stress`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use hazards::places::built;
use hazards::said;
use serde_json::Value;

const ORACLE: &str = env!("CARGO_BIN_EXE_oracle");

/// Runs programs on the simulated driver. Returns the report.
fn oracle(arguments: &[&str]) -> (Value, Output) {
    run(Command::new(ORACLE), arguments)
}

fn run(mut command: Command, arguments: &[&str]) -> (Value, Output) {
    command.args(["--json", "--programs", "40", "--limit", "10000", "--simulated"]);
    let output = command.arg(built("libsimcuda.so")).args(arguments).output().expect("the program starts");
    let document = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    (document, output)
}

fn clean(arguments: &[&str]) -> Value {
    let (document, output) = oracle(arguments);
    assert!(output.status.success(), "{}", said(&output));
    assert!(document["checked_bytes"].as_u64() > Some(0), "nothing was looked at: {document}");
    document
}

/// The kind of each fault that was found.
fn faults(document: &Value) -> Vec<String> {
    let failed = document["failed"].as_array().expect("a list");
    let kind =
        |failed: &Value| failed["fault"].as_str().expect("a text").split(':').next().unwrap_or("").to_owned();
    failed.iter().map(kind).collect()
}

/// Hazard (error handling): a reader that has seen enough, such as `head`, is a panic.
#[test]
fn a_reader_that_goes_ends_the_print() {
    let mut command = Command::new(ORACLE);
    command.args(["--print", "--programs", "50"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{}", said(&output));
}

/// Programs of one device with gates, programs of two devices without, programs with scarce memory.
const SITUATIONS: [&[&str]; 3] = [
    &["--seed", "1000"],
    &["--seed", "2000", "--devices", "2", "--no-gates"],
    &["--seed", "3000", "--scarce"],
];

fn bare(situation: usize) -> Value {
    clean(&[SITUATIONS[situation], &["--sides", "bare"]].concat())
}

fn both(situation: usize) -> Value {
    clean(
        &[SITUATIONS[situation], &["--sides", "both", "--library", &built("libwmshim.so").to_string_lossy()]]
            .concat(),
    )
}

/// Hazard: a guard waits where the bare driver does not, or orders work that the bare driver leaves
/// unordered.
fn guarded(guard: &str) {
    let library = built("libwmshim.so");
    let mut command = Command::new(ORACLE);
    // Both sides get the variable; the driver alone ignores it.
    command.env("WMSHIM_GUARD", guard);
    let (_, output) = run(command, &["--seed", "200", "--library", &library.to_string_lossy()]);
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn the_library_with_canaries() {
    guarded("canary");
}

#[test]
fn the_library_with_pages() {
    guarded("page");
}

#[test]
fn the_driver_alone_with_gates() {
    let document = bare(0);
    assert!(document["steps"]["close a gate"].as_u64() > Some(0), "{document}");
}

#[test]
fn the_driver_alone_with_two_devices() {
    bare(1);
}

#[test]
fn the_driver_alone_with_little_memory() {
    let document = bare(2);
    assert!(document["refused"].as_u64() > Some(0), "memory was never short: {document}");
}

#[test]
fn the_library_with_gates() {
    both(0);
}

#[test]
fn the_library_with_two_devices() {
    both(1);
}

#[test]
fn the_library_with_little_memory() {
    both(2);
}

/// Hazard: copies over several links are not ordered like the driver's copies; or a run has none.
#[test]
fn the_library_with_copies_over_several_links() {
    let library = built("libwmshim.so");
    let library = library.to_string_lossy();
    let document = clean(&["--seed", "4000", "--relays", "--programs", "20", "--library", &library]);
    let relayed = document["relayed"].as_object().expect("counts by name");
    for (direction, memory) in
        ["HtoD", "DtoH"].into_iter().flat_map(|way| [(way, "pinned"), (way, "pageable")])
    {
        let is_it = |name: &String| name.contains(direction) && name.contains(memory);
        assert!(relayed.keys().any(is_it), "{direction}, {memory} memory: {document}");
    }
}

/// Hazard: pageable copies that threads carry, as every program has them by default, with one
/// device.
#[test]
fn the_library_with_the_same_copies_over_one_link() {
    let library = built("libwmshim.so");
    let library = library.to_string_lossy();
    let document = clean(&["--seed", "4000", "--copies", "--programs", "16", "--library", &library]);
    let carried: Vec<_> = document["relayed"].as_object().expect("counts by name").keys().collect();
    assert!(!carried.iter().any(|name| name.contains("pinned")), "{document}");
    for direction in ["HtoD", "DtoH"] {
        assert!(carried.iter().any(|name| name.contains(direction)), "{direction}: {document}");
    }
}

/// Hazard (data race): memory moves under work that uses it.
#[test]
fn the_library_with_moves() {
    let library = built("libwmshim.so");
    let library = library.to_string_lossy();
    let document = clean(&["--seed", "6000", "--moves", "--programs", "12", "--library", &library]);
    assert!(document["moved_bytes"].as_u64() > Some(0), "{document}");
}

/// Hazard (wrong result): bytes are lost, or a call fails, when an operator limits, trims, detaches
/// or attaches a program at a random moment.
#[test]
fn programs_that_are_limited_and_detached_at_random_moments() {
    let library = built("libwmshim.so");
    let library = library.to_string_lossy();
    for (seed, more) in [("7000", &[][..]), ("7500", &["--mapped"])] {
        let arguments = ["--seed", seed, "--moves", "--limits", "--programs", "6", "--library", &library];
        let document = clean(&[&arguments[..], more].concat());
        assert!(document["moved_bytes"].as_u64() > Some(0), "nothing moved");
    }
}

/// Hazard (wrong result): memory that a program makes itself loses its bytes when it moves, or the
/// program has other memory by its handle than by its addresses.
#[test]
fn memory_of_the_programs_own_with_moves() {
    let library = built("libwmshim.so");
    let library = library.to_string_lossy();
    let arguments = ["--seed", "6500", "--moves", "--mapped", "--programs", "16", "--library", &library];
    let document = clean(&arguments);
    for step in ["cuMemCreate", "cuMemMap again", "cuMemRetainAllocationHandle"] {
        assert!(document["steps"][step].as_u64() > Some(0), "{step}: {document}");
    }
    assert!(document["moved_bytes"].as_u64() > Some(0), "{document}");
}

/// Hazard (deadlock): with less memory than it needs a stream of the program waits for memory that
/// another one frees, and the host holds that one until the first has gone on. Program 151 did so.
#[test]
fn a_stream_that_the_host_holds_keeps_no_other_one_waiting() {
    let library = built("libwmshim.so");
    let library = library.to_string_lossy();
    clean(&["--seed", "145", "--moves", "--mapped", "--programs", "8", "--library", &library]);
}

/// Hazard (wrong result): bytes change, or a call waits for ever, while the process is paused and
/// resumed at any moment.
#[test]
fn the_library_with_pauses() {
    let library = built("libwmshim.so");
    let library = library.to_string_lossy();
    for arguments in
        [&["--seed", "6800"][..], &["--seed", "6900", "--mapped"], &["--seed", "6950", "--moves"]]
    {
        let common = ["--pauses", "--programs", "5", "--library", &library];
        let document = clean(&[arguments, &common].concat());
        assert!(document["moved_bytes"].as_u64() > Some(0), "{document}");
    }
}

/// Hazard (wrong result): pauses, limits, detaches and attaches meet at random moments, while
/// processes that take the device's memory are killed, and calls of the driver fail.
#[test]
fn all_changes_at_once_beside_partners_that_are_killed() {
    let library = built("libwmshim.so");
    let library = library.to_string_lossy();
    let common = ["--pauses", "--partners", "--programs", "5", "--library", &library];
    let failing = ["--seed", "60197", "--moves", "--limits", "--failing"];
    for arguments in [&["--seed", "7600", "--moves", "--limits"][..], &["--seed", "7700"], &failing] {
        let document = clean(&[arguments, &common].concat());
        assert!(document["moved_bytes"].as_u64() > Some(0), "{document}");
    }
}

/// Hazard (wrong result): bytes change, or a call fails or waits for ever, where processes take
/// turns at a device and others are killed, and so is the broker.
#[test]
fn programs_that_take_turns_beside_others_that_are_killed() {
    let library = built("libwmshim.so");
    let library = library.to_string_lossy();
    let document = clean(&["--seed", "7900", "--turns", "--programs", "8", "--library", &library]);
    assert!(document["asks"].as_u64() > Some(0), "no program waited for its turn: {document}");
}

/// Hazard: a run in which nothing moves ends as a success.
#[test]
fn a_run_without_moves_is_an_error() {
    let mut command = Command::new(ORACLE);
    // Both sides get the variable; the driver alone ignores it.
    command.env("WMSHIM_DISABLE", "on").args(["--moves", "--programs", "2", "--simulated"]);
    command.arg(built("libsimcuda.so")).arg("--library").arg(built("libwmshim.so"));
    let output = command.output().expect("the program starts");
    let text = said(&output);
    assert!(output.status.code() == Some(2) && text.contains("nothing is said about moves"), "{text}");
}

/// Hazard: a run without relayed copies ends as a success.
#[test]
fn a_library_that_does_not_tell_of_relays_is_an_error() {
    let simulated = built("libsimcuda.so");
    let mut command = Command::new(ORACLE);
    command.args(["--relays", "--programs", "1", "--simulated"]).arg(&simulated);
    let output = command.arg("--library").arg(simulated).output().expect("the program starts");
    let text = said(&output);
    assert!(output.status.code() == Some(2) && text.contains("no copy can be relayed"), "{text}");
}

/// Hazard: memory that a program makes itself has other bytes after it went to the host, or became
/// device memory for its export.
#[test]
fn memory_of_the_programs_own() {
    let library = built("libwmshim.so");
    let library = library.to_string_lossy();
    for arguments in [&["--seed", "7000"][..], &["--seed", "8000", "--devices", "2", "--no-gates"]] {
        clean(&[arguments, &["--mapped", "--library", &library]].concat());
    }
    let scarce = ["--seed", "9000", "--mapped", "--scarce", "--memory", "48MiB"];
    let bare = clean(&[&scarce[..], &["--sides", "bare"]].concat());
    assert!(bare["refused"].as_u64() > Some(0), "memory was never short: {bare}");
    let document = clean(&[&scarce[..], &["--library", &library]].concat());
    for step in ["cuMemCreate", "cuMemRetainAllocationHandle", "cuMemExportToShareableHandle"] {
        assert!(document["steps"][step].as_u64() > Some(0), "{step}: {document}");
    }
}

#[test]
fn work_that_nothing_orders_is_found_by_its_bytes() {
    let (document, output) = oracle(&["--lawless", "--sides", "bare", "--no-races", "--failures", "1"]);
    assert_eq!(
        (output.status.code(), faults(&document)),
        (Some(1), vec!["wrong bytes".into()]),
        "{}",
        said(&output)
    );
}

#[test]
fn work_that_nothing_orders_is_found_as_a_race_and_again_when_it_was_saved() {
    let (document, output) = oracle(&["--lawless", "--sides", "bare", "--failures", "1"]);
    assert_eq!(
        (output.status.code(), faults(&document)),
        (Some(1), vec!["race".into()]),
        "{}",
        said(&output)
    );
    let saved = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lawless.json");
    fs::write(&saved, document["failed"][0]["programs"].to_string()).expect("a file");
    let (document, output) = oracle(&["--sides", "bare", "--program", &saved.to_string_lossy()]);
    assert_eq!(
        (output.status.code(), faults(&document)),
        (Some(1), vec!["race".into()]),
        "{}",
        said(&output)
    );
}

/// A program that waits for a gate that no step opens, and a program after it.
const STAYS: &str = r#"[
    {"seed": 1, "shape": {"threads": 1, "streams": [{"context": "First", "kind": "NonBlocking"}], "keep": true, "internal": true,
        "rules": {"allocation_is_action": true, "free_is_action": true}},
     "steps": [{"thread": 0, "current": "First", "action": {"Close": {"gate": 0, "stream": 0}}},
               {"thread": 0, "current": "First", "action": {"SyncStream": {"stream": 0}}},
               {"thread": 0, "current": "First", "action": "Info"}]},
    {"seed": 2, "shape": {"threads": 1, "streams": [{"context": "First", "kind": "NonBlocking"}], "keep": true, "internal": true,
        "rules": {"allocation_is_action": true, "free_is_action": true}},
     "steps": [{"thread": 0, "current": "First", "action": {"SyncStream": {"stream": 0}}}]}
]"#;

#[test]
fn a_program_that_waits_for_a_gate_is_left_and_the_process_goes_on() {
    let saved = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stays.json");
    fs::write(&saved, STAYS).expect("a file");
    let saved = saved.to_string_lossy();
    let arguments = ["--sides", "bare", "--program", &saved, "--bare-limit", "500"];
    let (document, output) = oracle(&[&arguments[..], &["--scarce"]].concat());
    let open = &document["open_at"]["cuStreamSynchronize"];
    assert_eq!((&document["programs"], open, &document["open_for_good"]), (&2.into(), &1.into(), &0.into()));
    assert!(output.status.success(), "{}", said(&output));
    let (document, output) = oracle(&[&arguments[..], &["--no-shrink", "--failures", "2"]].concat());
    assert_eq!(faults(&document), ["hang"], "{}", said(&output));
}

#[test]
fn the_run_ends_in_time_and_tells_what_there_is() {
    let (document, output) =
        oracle(&["--sides", "bare", "--programs", "100000", "--seconds", "2", "--jobs", "2"]);
    assert!(output.status.success() && document["programs"].as_u64() > Some(0), "{}", said(&output));
    assert!(document["seconds"].as_f64() < Some(10.0), "{}", said(&output));
}
