//! Hazard (latency): a table of many programs takes a core. Hazard (corrupt input): a file that any
//! process of the user can write ends its reader.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use hazards::processor::used_by_children;
use support::{Scratch, stderr, stdout, wmctl};
use wm_schema::black_box::{BlackBox, DeviceWords, HotWords, ProcessWords};
use wm_trust::incarnation::Incarnation;

fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").expect("there").ino()
}

/// The bytes of a process's box.
fn box_of(pid: u32) -> Vec<u8> {
    let own = Incarnation::of(&pid.to_string()).expect("it lives");
    let made = Box::new(BlackBox::new());
    made.process.store(&ProcessWords {
        magic: BlackBox::MAGIC,
        version: BlackBox::VERSION,
        bytes: BlackBox::BYTES as u64,
        pid: pid.into(),
        started_ticks: own.started,
        stack: own.stack,
        namespace: namespace(),
        noted_s: 5,
        ..ProcessWords::default()
    });
    made.program.store("stand-in");
    made.devices[0].hot.store(&HotWords { number: 1, live_device: 7 << 20, ..HotWords::default() });
    made.devices[0].publish(&DeviceWords { reserved_device: 32 << 20, ..DeviceWords::default() });
    // SAFETY: a box is words without padding, and no thread writes it.
    unsafe { std::slice::from_raw_parts((&raw const *made).cast::<u8>(), BlackBox::BYTES) }.to_vec()
}

fn put(scratch: &Scratch, pid: u32, bytes: &[u8]) {
    let path = scratch.path().join(format!("{pid}-{}.box", namespace()));
    fs::write(&path, bytes).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).expect("its own");
}

/// Threads have numbers and files in `/proc` as processes have.
fn stand_ins(scratch: &Scratch, count: usize) -> Vec<Sender<()>> {
    let (told, numbers) = mpsc::channel();
    let stand_in = |_| {
        let (end, ended) = mpsc::channel::<()>();
        let told = told.clone();
        thread::spawn(move || {
            told.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()).expect("heard");
            let _the_test_is_over = ended.recv();
        });
        end
    };
    let all: Vec<_> = (0..count).map(stand_in).collect();
    numbers.iter().take(count).for_each(|pid| put(scratch, pid, &box_of(pid)));
    all
}

fn run(scratch: &Scratch, words: &[&str]) -> Output {
    wmctl(scratch).args(words).output().expect("ran")
}

/// Processor time that a child has used.
fn used(child: &Child) -> Duration {
    let line = fs::read_to_string(format!("/proc/{}/stat", child.id())).expect("it lives");
    let fields: Vec<_> = line.rsplit_once(')').expect("a name").1.split_ascii_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("ticks")).sum();
    Duration::from_millis(10 * ticks)
}

#[test]
fn two_hundred_programs_are_listed_at_once_and_watched_for_little() {
    let scratch = Scratch::new("many");
    let _stand_ins = stand_ins(&scratch, 200);
    // Processor time: on a machine that is busy the clock shows the others' time.
    let timed = |_| {
        let before = used_by_children();
        let output = run(&scratch, &["stats"]);
        (used_by_children() - before, stdout(&output).lines().count())
    };
    let (took, lines) = (0..5).map(timed).min().expect("five");
    assert_eq!(lines, 201);
    assert!(took < Duration::from_millis(100), "{took:?}");
    let mut top = wmctl(&scratch).args(["top", "--json"]).stdout(Stdio::piped()).spawn().expect("started");
    let mut tables = BufReader::new(top.stdout.take().expect("a pipe")).lines();
    let mut next = || tables.next().expect("a table").expect("text").matches("stand-in").count();
    assert_eq!(next(), 200);
    let (before, begun) = (used(&top), Instant::now());
    (0..5).for_each(|_| assert_eq!(next(), 200));
    let share = (used(&top) - before).as_secs_f64() / begun.elapsed().as_secs_f64();
    top.kill().and_then(|()| top.wait()).expect("ended");
    // Optimised it takes a fraction of that; a tick of the clock is a fifth of a percent here.
    let most = if cfg!(debug_assertions) { 0.1 } else { 0.02 };
    assert!(share <= most, "{:.1} % of a core", share * 100.0);
}

/// A generator of words, the same in each run.
fn garbage(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

#[test]
fn files_of_garbage_are_survived_and_said() {
    let scratch = Scratch::new("garbage");
    let _stand_ins = stand_ins(&scratch, 1);
    let sizes = [0, 1, 8, 4095, BlackBox::FIGURES, BlackBox::BYTES, 1 << 20];
    for (number, size) in (0..28).zip(sizes.into_iter().cycle()) {
        let mut bytes = garbage(number + 1, size);
        let head = [BlackBox::MAGIC, BlackBox::VERSION + number % 2, BlackBox::BYTES as u64];
        let head: Vec<u8> = head.into_iter().flat_map(u64::to_ne_bytes).collect();
        if number > 13 && size > head.len() {
            bytes[..head.len()].copy_from_slice(&head);
        }
        put(&scratch, 4_000_000 + number as u32, &bytes);
    }
    symlink("/dev/zero", scratch.path().join(format!("4000100-{}.box", namespace()))).expect("a link");
    let pipe = scratch.path().join(format!("4000101-{}.box", namespace()));
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    for words in [&["stats"][..], &["top", "--once", "--interval", "0.02"], &["stats", "--dead"]] {
        let output = run(&scratch, words);
        let (text, said) = (stdout(&output), stderr(&output));
        assert!(output.status.success() && !said.contains("panicked"), "{words:?}: {text}{said}");
        assert!(
            words[1..] == ["--dead"] || text.contains("stand-in") || text.contains("7.0 MiB"),
            "{text}{said}"
        );
    }
    let said = stderr(&run(&scratch, &["stats"]));
    let version = BlackBox::VERSION;
    let layout = format!("has layout {}, and this wmctl reads {version}", version + 1);
    for expected in [&layout, "is no black box of wmshim", "is too short"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let cleaned = stdout(&run(&scratch, &["clean"]));
    assert_eq!(cleaned.lines().count(), 28, "{cleaned}");
    assert!(is_there(&pipe), "a pipe is no box");
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

/// Another user's file in a folder of this user's says nothing of this user's programs.
#[test]
fn files_of_others_and_of_other_namespaces_are_left_alone() {
    let scratch = Scratch::new("others");
    let pid = std::process::id();
    let path = scratch.path().join(format!("{pid}-{}.box", namespace() + 1));
    fs::write(&path, box_of(pid)).expect("written");
    let output = run(&scratch, &["clean"]);
    assert_eq!(stdout(&output), "nothing is left over\n");
    put(&scratch, pid, &box_of(pid));
    let own = scratch.path().join(format!("{pid}-{}.box", namespace()));
    if std::os::unix::fs::chown(&own, Some(12_345), None).is_err() {
        return hazards::skip("needs root");
    }
    assert!(!run(&scratch, &["stats"]).status.success(), "another user's");
    assert!(is_there(&path) && is_there(&own));
}

/// What an archive has, by file.
fn unpacked(scratch: &Scratch, name: &str) -> impl Fn(&str) -> String {
    let folder = scratch.path().join(format!("{name}-unpacked"));
    fs::create_dir(&folder).expect("a folder");
    let unpack =
        Command::new("tar").arg("-xzf").arg(scratch.path().join(name)).arg("-C").arg(&folder).status();
    assert!(unpack.expect("tar").success());
    move |file| fs::read_to_string(folder.join("wmshim-bug-report").join(file)).expect(file)
}

/// Hazard (privilege boundary): a report of a fault has a password that its author did not mean to
/// send.
#[test]
fn a_bug_report_has_figures_and_settings_and_no_secrets() {
    let scratch = Scratch::new("report");
    let mut program = Command::new("sleep").arg("60").spawn().expect("started");
    let mut ended =
        Command::new("sh").args(["-c", "read line"]).stdin(Stdio::piped()).spawn().expect("started");
    put(&scratch, program.id(), &box_of(program.id()));
    put(&scratch, ended.id(), &box_of(ended.id()));
    ended.kill().and_then(|()| ended.wait()).expect("ended");
    let report = |name: &str, options: &[&str]| {
        let mut command = wmctl(&scratch);
        command.env("WMSHIM_DEVICE_LIMIT", "48 gallons").env("TOKEN", "hunter2").args(["bug-report"]);
        command.args(options).arg("--output").arg(scratch.path().join(name)).output().expect("ran")
    };
    let output = report("a.tar.gz", &[]);
    let list = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    let file = unpacked(&scratch, "a.tar.gz");
    let programs: serde_json::Value = serde_json::from_str(&file("programs.json")).expect("JSON");
    assert_eq!(programs["running"][0]["identity"]["command"], serde_json::json!(["sleep"]));
    assert_eq!(programs["running"][0]["stats"]["devices"][0]["tiers"]["device"]["live_bytes"], 7 << 20);
    assert_eq!(programs["ended_without_an_exit"][0]["stats"]["pid"], ended.id());
    let settings: serde_json::Value = serde_json::from_str(&file("settings.json")).expect("JSON");
    assert_eq!(settings["variables"]["WMSHIM_DEVICE_LIMIT"], "48 gallons");
    assert!(
        settings["variables"].as_object().expect("variables").keys().all(|key| key.starts_with("WMSHIM_"))
    );
    assert!(file("doctor.json").contains("wmctl-doctor/1") && file("versions.json").contains("\"glibc\""));
    assert!(file("maps.txt").contains(&format!("process {}\n", program.id())));
    let names = ["README.txt", "versions.json", "doctor.json", "settings.json", "programs.json", "maps.txt"];
    names[1..].iter().for_each(|name| assert!(list.contains(name), "{name} is not listed: {list}"));
    let everything: String = names.iter().map(|name| file(name)).collect();
    assert!(!everything.contains("hunter2"), "a variable of the shell is in it");
    let mode = fs::metadata(scratch.path().join("a.tar.gz")).expect("there").mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = report("a.tar.gz", &[]);
    assert!(!again.status.success() && stderr(&again).contains("--output"), "nothing is overwritten");
    let all = report("b.tar.gz", &["--arguments", "--environment", "--json"]);
    assert!(stdout(&all).contains("wmctl-bug-report/1"));
    program.kill().and_then(|()| program.wait()).expect("ended");
    let file = unpacked(&scratch, "b.tar.gz");
    assert!(file("settings.json").contains("hunter2") && file("programs.json").contains("\"60\""));
}
