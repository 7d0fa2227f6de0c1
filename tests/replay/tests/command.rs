//! Guards the command against answers that mislead: a trace that is none, a limit that is not kept, a capacity that is
//! not enough, a periodic program that is charged for its first period for ever.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
