//! Hazard (wrong report): a process takes its figures with it, because it was killed or left
//! without an exit; a forked child writes its parent's figures; a dead process's figures count as a
//! living one's.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hazards::processor::used_by_children;
use hazards::resident::Resident;
use hazards::{Host, Outcome, Scratch, c, driver, places};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// `wmctl` that looks into the scratch folder.
fn wmctl(scratch: &Scratch, words: &[&str]) -> Outcome {
    Host::bare(places::wmctl()).args(words).env("WMSHIM_STATS_DIR", scratch.path().join("stats")).run()
}

/// A program under `wmctl run --stats`, and the statistics of its processes.
fn followed(scratch: &Scratch, driver: &Path, program: &[&str]) -> (Outcome, Vec<Value>) {
    let outcome = Host::bare(places::wmctl())
        .args(["run", "-q", "--stats", "--json", "--"])
        .args(program)
        .env("WMSHIM_LIB", places::shim())
        .env("WMSHIM_DRIVER", driver)
        .env("WMSHIM_STATS_DIR", scratch.path().join("stats"))
        .run();
    let report: Value = outcome.stderr.lines().last().map_or(Value::Null, |line| {
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {}", outcome.stderr))
    });
    let processes = report["processes"].as_array().expect("a list").clone();
    (outcome, processes)
}

fn ends(scratch: &Scratch) -> String {
    c::cuda_program(scratch, "ends").display().to_string()
}

/// The most that was live on the device, MiB.
fn peak(process: &Value) -> u64 {
    process["devices"][0]["memory"]["device"]["peak_live_bytes"].as_u64().expect("a figure") / MIB
}

fn boxes(scratch: &Scratch) -> Vec<PathBuf> {
    let entries = fs::read_dir(scratch.path().join("stats")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "box")).collect()
}

/// Runs a program under the library alone.
fn left_by(scratch: &Scratch, way: &str) -> Outcome {
    Host::shimmed(ends(scratch), scratch, &driver::simulated(scratch)).args([way]).run()
}

/// The figures of the only program that ended without an exit.
fn dead(scratch: &Scratch) -> Value {
    let outcome = wmctl(scratch, &["stats", "--dead", "--json"]);
    let document: Value = serde_json::from_str(outcome.expect_success()).expect("JSON");
    let processes = document["processes"].as_array().expect("a list");
    assert_eq!(processes.len(), 1, "{document}");
    processes[0]["answer"].clone()
}

#[test]
fn however_a_process_ends_its_figures_are_there() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    for (way, code) in [("crash", 139), ("leave", 0), ("kill", 137), ("exit", 0)] {
        let (outcome, processes) = followed(&scratch, &driver, &[&ends(&scratch), way]);
        assert_eq!((outcome.status.code(), processes.len()), (Some(code), 1), "{way}: {}", outcome.stderr);
        assert_eq!(peak(&processes[0]), 1, "{way}");
    }
    assert_eq!(boxes(&scratch), Vec::<PathBuf>::new(), "the boxes of a run go with it");
}

#[test]
fn of_forty_that_are_killed_in_the_midst_all_are_there() {
    let scratch = Scratch::new();
    let (_, processes) = followed(&scratch, &driver::simulated(&scratch), &[&ends(&scratch), "many"]);
    let mut peaks: Vec<_> = processes.iter().map(peak).collect();
    peaks.sort_unstable();
    assert_eq!(peaks, (2..=41).collect::<Vec<_>>(), "its own MiB, and one more while it churned");
}

/// Workers of `multiprocessing` leave by `os._exit`; those of a pool are terminated.
const WORKERS: &str = "
import ctypes, multiprocessing as mp, os, sys, time
def work(number):
    driver = ctypes.CDLL('libcuda.so.1')
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    codes = [driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
             driver.cuCtxSetCurrent(context), driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(number << 20))]
    assert codes == [0, 0, 0, 0], codes
    return os.getpid()
if __name__ == '__main__':
    kind, way = sys.argv[1], sys.argv[2]
    if kind == 'processes':
        context = mp.get_context(way)
        workers = [context.Process(target=work, args=(number,)) for number in (1, 2, 3)]
        [worker.start() for worker in workers]
        [worker.join() for worker in workers]
        print(*(worker.pid for worker in workers))
    elif kind == 'pool':
        with mp.get_context(way).Pool(3) as pool:
            print(*set(pool.map(work, (1, 1, 1))))
    else:
        work(1)
        print(os.getpid(), flush=True)
        os._exit(3)
";

/// Hazard (wrong report): one of three workers is shown. A pool's workers that got no task before
/// the others had done all make no call of CUDA, so those that did are counted by their own words.
#[test]
fn each_worker_of_a_python_program_that_used_cuda_is_there() {
    let scratch = Scratch::new();
    let script = scratch.path().join("workers.py");
    fs::write(&script, WORKERS).expect("written");
    let (script, driver) = (script.display().to_string(), driver::simulated(&scratch));
    for (kind, way) in
        [("processes", "fork"), ("processes", "spawn"), ("pool", "fork"), ("pool", "spawn"), ("alone", "-")]
    {
        let (outcome, processes) = followed(&scratch, &driver, &["python3", &script, kind, way]);
        let mut used: Vec<u64> =
            outcome.stdout.split_ascii_whitespace().map(|pid| pid.parse().expect("a number")).collect();
        let mut shown: Vec<u64> =
            processes.iter().map(|process| process["pid"].as_u64().expect("a number")).collect();
        used.sort_unstable();
        shown.sort_unstable();
        assert_eq!(used, shown, "{kind} by {way}: {}", outcome.stderr);
        assert!(kind != "processes" || used.len() == 3, "{used:?}");
        assert!(processes.iter().all(|process| peak(process) >= 1), "{processes:?}");
    }
}

#[test]
fn hits_and_frees_keep_the_box_right() {
    let scratch = Scratch::new();
    left_by(&scratch, "hits").expect_success();
    let device = dead(&scratch)["devices"][0].clone();
    let counters = &device["counters"];
    let counts = ["allocations", "frees", "hits"].map(|name| counters[name].as_u64().expect("a count"));
    assert_eq!(counts[0] - counts[1], 3, "{counters}");
    assert!(counts[0] >= 1011 && counts[2] >= 900, "{counters}");
    let tier = &device["memory"]["device"];
    assert_eq!((&tier["live_bytes"], &tier["peak_live_bytes"]), (&(3 * MIB).into(), &(11 * MIB).into()));
}

#[test]
fn what_the_dead_left_is_shown_first_and_then_removed() {
    let scratch = Scratch::new();
    left_by(&scratch, "oom").expect_success();
    let left = boxes(&scratch);
    let mode = fs::metadata(&left[0]).expect("there").permissions().mode() & 0o777;
    assert_eq!((left.len(), mode), (1, 0o400), "no other process opens it for writing by accident");
    let figures = dead(&scratch);
    assert_eq!(figures["devices"][0]["counters"]["out_of_memory"], 1, "{figures}");
    let text = wmctl(&scratch, &["stats", "--dead"]);
    assert!(text.expect_success().contains("1.0 TiB"), "what was asked for is said: {}", text.stdout);
    let said = wmctl(&scratch, &["stats"]).stderr;
    assert!(said.contains("`wmctl stats --dead` shows its figures"), "{said}");
    let cleaned = wmctl(&scratch, &["clean"]);
    assert!(
        cleaned.expect_success().contains(&format!("removed {}", left[0].display())),
        "{}",
        cleaned.stdout
    );
    assert_eq!(boxes(&scratch).len(), 0);
    assert!(!wmctl(&scratch, &["stats", "--dead"]).status.success());
}

#[test]
fn an_exit_leaves_no_box_and_a_process_without_cuda_makes_none() {
    let scratch = Scratch::new();
    left_by(&scratch, "exit").expect_success();
    assert_eq!(boxes(&scratch).len(), 0);
    let scratch = Scratch::new();
    Host::shimmed("true", &scratch, &driver::simulated(&scratch)).run().expect_success();
    assert!(!scratch.path().join("stats").exists(), "no folder either");
}

#[test]
fn a_forked_child_writes_nothing_of_its_parent() {
    let scratch = Scratch::new();
    let (_, processes) = followed(&scratch, &driver::simulated(&scratch), &[&ends(&scratch), "forks"]);
    assert_eq!(processes.len(), 1, "{processes:?}");
    assert_eq!(peak(&processes[0]), 1);
}

/// The number and the start are those of before, and the figures are another program's.
#[test]
fn a_program_that_was_executed_has_not_the_figures_of_the_one_before() {
    let scratch = Scratch::new();
    let program = Host::shimmed(ends(&scratch), &scratch, &driver::simulated(&scratch)).args(["execs"]);
    let mut child = program.start();
    let mut input = child.stdin.take().expect("a pipe");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    writeln!(input, "it is cat").expect("written");
    let mut line = String::new();
    output.read_line(&mut line).expect("read");
    assert_eq!(line, "it is cat\n");
    let list = wmctl(&scratch, &["stats"]);
    assert!(!list.status.success() && list.stderr.contains("--dead"), "{}{}", list.stdout, list.stderr);
    assert_eq!(peak(&dead(&scratch)), 1);
    drop(input);
    assert!(child.wait().expect("ended").success());
}

fn state_of(pid: u32) -> String {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    line.rsplit_once(") ").expect("a name").1[..1].to_owned()
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status().expect("kill");
    assert!(sent.success());
}

/// The least processor time of a few runs: on a machine that is busy the clock shows the others'
/// time. None of them waits.
fn shortest(scratch: &Scratch, words: &[&str]) -> (Duration, String) {
    let timed = |_| {
        let before = used_by_children();
        let outcome = wmctl(scratch, words);
        assert!(outcome.took < Duration::from_secs(2), "{words:?} took {:?}", outcome.took);
        (used_by_children() - before, outcome.stdout)
    };
    (0..5).map(timed).min_by_key(|(used, _)| *used).expect("five")
}

#[test]
fn a_stopped_program_delays_no_table_and_is_called_stopped() {
    let (scratch, another) = (Scratch::new(), Scratch::new());
    let mut one = Resident::start(&scratch);
    let folder = one.statistics().to_str().expect("text").to_owned();
    let mut other = Resident::start_with(&another, &[("WMSHIM_STATS_DIR", &folder)]);
    one.say("begin");
    other.say("begin");
    signal(one.id(), "-STOP");
    while state_of(one.id()) != "T" {
        std::thread::yield_now();
    }
    let pid = one.id().to_string();
    for words in [&["stats"][..], &["stats", &pid]] {
        let (took, text) = shortest(&scratch, words);
        assert!(took < Duration::from_millis(50), "{words:?} used {took:?}");
        assert!(text.contains("8.0 MiB"), "{text}");
        assert!(words.len() == 2 || text.contains("resident (stopped)"), "{text}");
    }
    tables_come_every_second(&scratch);
    signal(one.id(), "-CONT");
    assert!(one.end("exit").is_empty() && other.end("exit").is_empty());
}

fn tables_come_every_second(scratch: &Scratch) {
    let mut top = Command::new(places::wmctl())
        .args(["top", "--json"])
        .env("WMSHIM_STATS_DIR", scratch.path().join("stats"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(top.stdout.take().expect("a pipe")).lines();
    let mut last = Instant::now();
    for _ in 0..4 {
        let table: Value =
            serde_json::from_str(&lines.next().expect("a table").expect("text")).expect("JSON");
        let (now, stopped) = (Instant::now(), &table["processes"]);
        let took = now.duration_since(std::mem::replace(&mut last, now));
        let answers = stopped.as_array().expect("a list").iter().map(|it| it["answers"] == true);
        assert_eq!(answers.filter(|answers| *answers).count(), 2, "{table}");
        assert!((Duration::from_millis(900)..Duration::from_millis(1100)).contains(&took), "{took:?}");
    }
    top.kill().and_then(|()| top.wait()).expect("ended");
}

/// Where no file can be made, the program runs all the same, and is asked.
#[test]
fn without_room_for_a_box_the_program_runs() {
    let scratch = Scratch::new();
    let folder = scratch.path().join("stats");
    fs::create_dir(&folder).expect("a folder");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("private");
    let mut program = Resident::start(&scratch);
    let in_the_way = |pid: u32| folder.join(format!("{pid}-{}.box", namespace()));
    fs::write(in_the_way(program.id()), "a letter").expect("written");
    program.say("begin");
    assert_eq!(fs::read(in_the_way(program.id())).expect("there"), b"a letter");
    let list = wmctl(&scratch, &["stats"]);
    assert!(list.expect_success().contains("8.0 MiB"), "{}", list.stdout);
    program.end("exit");
}

fn namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(Path::new("/proc/self/ns/pid")).expect("there").ino()
}
