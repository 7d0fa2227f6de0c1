//! Hazard (wrong report): a recording loses events between threads or at the end, is unreadable
//! after a kill, gets a forked child's events, or a bad path ends the program. Each recording is
//! replayed by `wmctl`, so that one test holds the writer and the reader of the format.

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hazards::places::{self, built};
use hazards::said;
use serde_json::Value;

const RECORDED: &str = env!("CARGO_BIN_EXE_recorded");

/// An empty folder for one test.
fn folder(test: &str) -> PathBuf {
    places::emptied(Path::new(env!("CARGO_TARGET_TMPDIR")).join(test))
}

/// Runs the program in this mode under the shim, recording to `trace`.
fn record(mode: &str, trace: &Path) -> Output {
    recording(mode, trace).output().expect("the program starts")
}

fn recording(mode: &str, trace: &Path) -> Command {
    let mut command = Command::new(RECORDED);
    command.arg(mode).env("LD_PRELOAD", built("libwmshim.so")).env("WMSHIM_DRIVER", built("libsimcuda.so"));
    command.envs([("WMSHIM_STATS_SOCKET", "off"), ("SIMCUDA_DEVICES", "2"), ("SIMCUDA_MEMORY", "4GiB")]);
    command.env("WMSHIM_TRACE", trace);
    command
}

/// A figure that the program printed.
fn tally(output: &Output, name: &str) -> u64 {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let word = text.split_whitespace().find_map(|word| word.strip_prefix(&format!("{name}=")));
    word.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no {name} in: {}", said(output)))
}

/// The recording's lines.
fn lines(trace: &Path) -> Vec<String> {
    let file = fs::File::open(trace).expect("a recording");
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(file).read_to_string(&mut text).expect("whole gzip members");
    text.lines().map(str::to_owned).collect()
}

fn count(lines: &[String], kind: &str) -> u64 {
    lines.iter().filter(|line| line.starts_with(kind)).count() as u64
}

fn wmctl(arguments: &[&str], trace: &Path) -> Output {
    let mut command = Command::new(built("wmctl"));
    command.args(["replay", "--json", "--trace"]).arg(trace).args(arguments).env_remove("SIMCUDA_MEMORY");
    command.output().expect("wmctl starts")
}

/// The figures of a replay that must succeed.
fn replayed(arguments: &[&str], trace: &Path) -> Value {
    figures(&wmctl(arguments, trace))
}

/// The figures of `bench tiers`, which must succeed.
fn simulated_tiers(arguments: &[&str], trace: &Path) -> Value {
    let mut command = Command::new(built("bench"));
    figures(
        &command
            .args(["tiers", "--json", "--trace"])
            .arg(trace)
            .args(arguments)
            .output()
            .expect("bench starts"),
    )
}

fn figures(output: &Output) -> Value {
    assert!(output.status.success(), "{}", said(output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The recording and the program agree, and the replay completes with the same figures.
fn agree(output: &Output, trace: &Path) -> Value {
    assert!(output.status.success(), "{}", said(output));
    let lines = lines(trace);
    assert!(lines[0].starts_with("# wmshim-trace 5;"), "{}", lines[0]);
    for (kind, name) in [("a ", "allocations"), ("f ", "frees"), ("s ", "waits")] {
        assert_eq!(count(&lines, kind), tally(output, name), "{name}");
    }
    let figures = replayed(&[], trace);
    assert_eq!(figures["completed"], true);
    assert_eq!(figures["events"], lines.len() as u64 - 1 - count(&lines, "t "));
    let times: Vec<u64> =
        lines.iter().filter_map(|line| line.strip_prefix("t ")?.split(' ').next()?.parse().ok()).collect();
    assert!(times.len() > 1 && times.is_sorted(), "{times:?}");
    figures
}

#[test]
fn a_recording_is_what_the_program_did() {
    let trace = folder("plain").join("x.gz");
    let output = record("plain", &trace);
    let figures = agree(&output, &trace);
    assert_eq!(figures["peak_live_bytes"], tally(&output, "peak"));
    assert!(lines(&trace).iter().any(|line| line.contains(" - ")), "plain allocations have no stream");
    assert!(lines(&trace).iter().any(|line| line == "s *"), "waits for the context are of all streams");
}

#[test]
fn threads_lose_nothing() {
    let trace = folder("threads").join("x.gz");
    let output = record("threads", &trace);
    let figures = agree(&output, &trace);
    assert!(figures["peak_live_bytes"].as_u64() <= Some(tally(&output, "peak")));
}

#[test]
fn a_killed_process_leaves_what_it_had_flushed() {
    let trace = folder("killed").join("x.gz");
    let output = record("killed", &trace);
    assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{}", said(&output));
    let events = replayed(&[], &trace)["events"].as_u64().expect("a count");
    let done = ["allocations", "frees", "waits"].iter().map(|name| tally(&output, name)).sum::<u64>();
    assert!(events > 0 && events.is_multiple_of(4096) && events <= done, "{events} of {done}");
}

#[test]
fn a_forked_child_writes_nothing() {
    let trace = folder("forked").join("x.gz");
    agree(&record("forked", &trace), &trace);
}

#[test]
fn names_tell_processes_and_devices_apart() {
    let folder = folder("names");
    let output = record("devices", &folder.join("%p-%d.gz"));
    assert!(output.status.success(), "{}", said(&output));
    let mut files: Vec<_> =
        fs::read_dir(&folder).expect("the folder").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    let names: Vec<_> =
        files.iter().map(|file| file.file_name().expect("a name").to_string_lossy()).collect();
    assert!(names.len() == 2 && names[0].ends_with("-0.gz") && names[1].ends_with("-1.gz"), "{names:?}");
    let allocations: u64 = files.iter().map(|file| count(&lines(file), "a ")).sum();
    assert_eq!(allocations, tally(&output, "allocations"));
}

/// The recorded description of each launch of `launches`.
fn recorded_launches(test: &str, variables: &[(&str, &str)]) -> (PathBuf, Vec<String>) {
    let trace = folder(test).join("x.gz");
    let mut command = recording("launches", &trace);
    command.env("WMSHIM_TRACE_LAUNCHES", "on").envs(variables.iter().copied());
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{}", said(&output));
    let lines = lines(&trace);
    assert!(lines[0].starts_with("# wmshim-trace 5;"), "{}", lines[0]);
    (trace, lines.iter().filter_map(|line| line.strip_prefix("l 0 ")).map(str::to_owned).collect())
}

/// Every form of a launch, in the order of `src/launch.rs`: one without blocks, one of a function
/// with its handle; pointers, the same blocks again, a buffer, `cuLaunchKernelEx`, a cooperative
/// one, one without blocks, arguments that the driver refuses; twice a library's kernel; a graph,
/// without the launches captured into it.
#[test]
fn launches_are_recorded_with_their_blocks() {
    let wanted = ["-", "0,1", "=0", "=0", "2", "=1", "=1", "-", "?", "=1", "=1", "?"];
    let (trace, launches) = recorded_launches("launches", &[]);
    assert_eq!(launches, wanted);
    assert_eq!(replayed(&[], &trace)["launches"], launches.len());
    tiers_are_simulated(&trace);
    let (_, launches) = recorded_launches("same-handles", &[("SIMCUDA_REUSE_HANDLES", "1")]);
    assert_eq!(launches, wanted, "where handles come again");
}

/// A driver before CUDA 12.4 does not return the parameters of functions; here it still returns
/// those of a kernel.
#[test]
fn launches_of_unknown_parameters_are_unknown() {
    let failing = ("SIMCUDA_FAIL", "cuFuncGetParamInfo:1+");
    let (_, launches) = recorded_launches("unknown-launches", &[failing]);
    assert_eq!(launches, ["?", "?", "?", "?", "?", "?", "?", "?", "?", "2", "?", "?"]);
}

/// Three blocks of 256 bytes, of which a device of 512 holds two.
fn tiers_are_simulated(trace: &Path) {
    let figures = simulated_tiers(&[], trace);
    assert_eq!((&figures["schema"], &figures["launches"]), (&"bench-tiers/1".into(), &12.into()));
    assert_eq!((&figures["unknown_launches"], &figures["peak_live_bytes"]), (&2.into(), &768.into()));
    assert_eq!(figures["limits"].as_array().map(Vec::len), Some(4));
    let figures = simulated_tiers(&["--device-limit", "512B", "--link", "10"], trace);
    let policies = figures["limits"][0]["policies"].as_array().expect("policies");
    let figure = |policy: &str, name: &str| {
        let report = policies.iter().find(|report| report["policy"] == policy).expect("a policy");
        report[name].clone()
    };
    // Five launches in two runs fill the block that did not fit; those of a run are parts of one
    // operation.
    assert_eq!(figure("first-fit", "to_device_bytes"), 2 * 256, "{figures}");
    assert_eq!(figure("first-fit", "seconds"), 2.0 * 256.0 / 1e10);
    assert_eq!((figure("optimum", "ratio"), figure("ours", "stops").is_u64()), (1.0.into(), true));
}

/// Without the switch, a launch costs nothing.
#[test]
fn launches_are_recorded_where_that_is_asked_for() {
    let trace = folder("no-launches").join("x.gz");
    let output = record("launches", &trace);
    assert!(output.status.success(), "{}", said(&output));
    let lines = lines(&trace);
    assert!(lines[0].starts_with("# wmshim-trace 5;") && count(&lines, "l ") == 0, "{lines:#?}");
}

#[test]
fn one_name_for_two_devices_records_the_first_and_says_so() {
    let trace = folder("one-name").join("x.gz");
    let output = record("devices", &trace);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(said(&output).matches("WMSHIM_TRACE").count(), 1, "{}", said(&output));
    assert!(said(&output).contains("%d") && count(&lines(&trace), "a ") < tally(&output, "allocations"));
}

#[test]
fn a_bad_path_is_one_warning() {
    let output = record("short", &folder("bad").join("no/such/folder/x.gz"));
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(said(&output).matches("WMSHIM_TRACE").count(), 1, "{}", said(&output));
}
