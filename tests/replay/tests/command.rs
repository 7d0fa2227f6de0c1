//! Hazard (wrong report): `wmctl replay` accepts a file that is no trace, ignores a limit, reports
//! a capacity that is too small, or counts the first period of a periodic program in every period.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn wmctl() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_recorded")).with_file_name("wmctl");
    assert!(path.exists(), "{} is not there: run `cargo build --workspace` first", path.display());
    path
}

/// One of the recordings of real programs.
fn trace(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces").join(name)
}

fn run(trace: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(wmctl());
    command.args(["replay", "--json", "--trace"]).arg(trace).args(arguments).env_remove("SIMCUDA_MEMORY");
    command.output().expect("wmctl starts")
}

fn figures(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("no JSON: {}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn the_capacity_is_enough_and_a_step_less_is_not() {
    let gnn = trace("gnn.trace.gz");
    let found = figures(&run(&gnn, &["--find-capacity"]));
    let (peak, capacity) = (
        found["peak_live_bytes"].as_u64().expect("a size"),
        found["capacity_bytes"].as_u64().expect("a size"),
    );
    assert_eq!(peak, 44_571_200_136, "the peak that the recording's first line names");
    assert!(found["capacity_ratio"].as_f64() <= Some(1.03), "{found}");
    assert!(run(&gnn, &["--device-memory", &capacity.to_string()]).status.success());
    let less = run(&gnn, &["--device-memory", &(capacity - peak / 500).to_string()]);
    assert_eq!((less.status.code(), &figures(&less)["completed"]), (Some(1), &Value::Bool(false)));
    assert!(figures(&less)["refusal"].as_str().is_some_and(|sentence| sentence.contains("out of memory")));
}

/// A shell that sets a small simulated device for other programs.
#[test]
fn the_shells_simulated_memory_is_not_the_replays() {
    let mut command = Command::new(wmctl());
    command.args(["replay", "--json", "--trace"]).arg(trace("gnn.trace.gz")).env("SIMCUDA_MEMORY", "256MiB");
    let output = command.output().expect("wmctl starts");
    let figures = figures(&output);
    assert_eq!(
        (&figures["completed"], &figures["schema"]),
        (&true.into(), &"wmctl-replay/1".into()),
        "{figures}"
    );
}

/// A truncated copy, and a recording through a pipe.
#[test]
fn what_is_whole_of_a_trace_is_replayed() {
    let whole = std::fs::read(trace("gnn.trace.gz")).expect("a recording");
    for (part, complete) in [(&whole[..], true), (&whole[..whole.len() * 2 / 3], false)] {
        let mut command = Command::new(wmctl());
        command.args(["replay", "--json", "--trace", "-"]).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("wmctl starts");
        child.stdin.take().expect("a pipe").write_all(part).expect("it is read");
        let output = child.wait_with_output().expect("it ends");
        let (figures, said) = (figures(&output), String::from_utf8_lossy(&output.stderr).into_owned());
        assert_eq!(
            (figures["completed"].as_bool(), figures["truncated_after_lines"].is_null()),
            (Some(true), complete)
        );
        assert_eq!(said.contains("ends too early"), !complete, "{said}");
    }
}

#[test]
fn overflow_completes_within_the_limit() {
    let limit = 40u64 << 30;
    let figures = figures(&run(&trace("gnn.trace.gz"), &["--device-memory", "40GiB", "--overflow", "host"]));
    let [reserved, elsewhere] =
        ["peak_reserved_bytes", "overflow_peak_bytes"].map(|name| figures[name].as_u64());
    assert_eq!(figures["completed"], true, "{figures}");
    assert!(
        elsewhere > Some(0) && reserved.zip(elsewhere).is_some_and(|(all, host)| all - host <= limit),
        "{figures}"
    );
}

#[test]
fn threads_and_periods_play_every_event() {
    let figures = figures(&run(&trace("gnn.trace.gz"), &["--threads", "3", "--periods", "2"]));
    assert_eq!((&figures["completed"], &figures["threads"]), (&true.into(), &3.into()));
    assert_eq!(figures["events"], 3 * 2 * 383);
    assert_eq!(figures["vmm_calls_by_period"].as_array().map(Vec::len), Some(2));
}

#[test]
fn the_drivers_pool_is_compared_with() {
    let figures = figures(&run(&trace("gnn.trace.gz"), &["--baseline", "async"]));
    let baseline = &figures["baseline"];
    assert_eq!((&baseline["completed"], &baseline["events"]), (&true.into(), &figures["events"]));
    assert!(baseline["peak_reserved_bytes"].as_u64() >= baseline["peak_live_bytes"].as_u64(), "{baseline}");
}

/// Without launches the trace does not say when a block is used.
#[test]
fn tiers_are_not_simulated_without_launches() {
    let mut command = Command::new(wmctl().with_file_name("bench"));
    let output =
        command.args(["tiers", "--trace"]).arg(trace("gnn.trace.gz")).output().expect("bench starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("WMSHIM_TRACE_LAUNCHES=on"), "{error}");
}

#[test]
fn a_file_that_is_no_trace_is_refused_with_a_remedy() {
    for (path, words) in
        [("Cargo.toml", "not a gzip file"), ("no/such/file", "WMSHIM_TRACE"), ("src", "directory")]
    {
        let output = run(&Path::new(env!("CARGO_MANIFEST_DIR")).join(path), &[]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(error.starts_with("wmctl: ") && error.contains(words), "{path}: {error}");
    }
}
