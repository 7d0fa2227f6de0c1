//! Hazard (wrong report): a profile names code that holds nothing. Hazard (process crash): the
//! callers of an allocation are read from a stack, and from an interpreter, that may be in any
//! state.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use hazards::{Host, Outcome, Scratch, c, driver, places, skip};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// A folder with a driver, in which programs are profiled.
struct Profiled(Scratch, PathBuf);

impl Profiled {
    fn new() -> Self {
        let scratch = Scratch::new();
        let driver = driver::simulated(&scratch);
        Self(scratch, driver)
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("p.gz")
    }

    fn host(&self, program: impl AsRef<OsStr>, interval: &str) -> Host {
        let target = format!("{},{interval}", self.file().display());
        Host::shimmed(program, &self.0, &self.1).env("WMSHIM_PROFILE", target)
    }

    fn program(&self, name: &str) -> PathBuf {
        c::cuda_program(&self.0, name)
    }

    fn python(&self, python: &str, words: &[&str], interval: &str) -> Outcome {
        let script = places::source("python/holders.py");
        // The loader of the program's `dlopen` finds the library under the driver's name.
        let host = self.host(python, interval).args([script.as_os_str()]).args(words);
        host.env("LD_LIBRARY_PATH", &self.1).run()
    }

    /// Are functions of this Python known? Where not, the test is skipped.
    fn reads_python(&self, python: &str) -> bool {
        self.python(python, &[], "1MiB").expect_success();
        let is_known = !self.report(&self.file(), &[])["profile"]["python"].is_null();
        if !is_known {
            skip("python3 is none of 3.9 to 3.14, or process_vm_readv is forbidden here");
        }
        is_known
    }

    fn report(&self, file: &Path, arguments: &[&str]) -> Value {
        let output =
            Command::new(places::wmctl()).arg("profile").arg(file).arg("--json").args(arguments).output();
        let output = output.expect("wmctl starts");
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// Bytes at the peak of the holders with a function, and its place in their stacks.
fn held_by(report: &Value, function: &str) -> u64 {
    let holders = report["holders"].as_array().expect("holders");
    let has_it = |holder: &&Value| {
        let frames = holder["frames"].as_array().expect("frames");
        frames.iter().any(|frame| frame["function"].as_str().is_some_and(|name| name == function))
    };
    let bytes = |holder: &Value| holder.get("at_peak_bytes").or(holder.get("bytes")).and_then(Value::as_u64);
    holders.iter().filter(has_it).filter_map(bytes).sum()
}

/// Each function's share of 200 MiB, within 3 %.
fn expect_shares(report: &Value, functions: [&str; 3]) {
    for (function, share) in functions.into_iter().zip([60, 30, 10]) {
        let (held, expected) = (held_by(report, function), 200 * MIB * share / 100);
        assert!(held.abs_diff(expected) <= expected * 3 / 100, "{function} holds {held}: {report:#}");
    }
}

/// From Python 3.11 on a function's name has its class.
fn functions(version: &str) -> [&'static str; 3] {
    let is_plain = ["3.9", "3.10"].contains(&version);
    let method = if is_plain { "aktivierungen_für_schritt" } else { "Modell.aktivierungen_für_schritt" };
    ["weights", method, "cache"]
}

#[test]
fn three_functions_of_a_python_program_are_named_with_what_they_hold() {
    let profiled = Profiled::new();
    if !profiled.reads_python("python3") {
        return;
    }
    let mut versions = 0;
    for python in ["python3.9", "python3.10", "python3.11", "python3.12", "python3.13", "python3.14"] {
        let is_there =
            Command::new(python).arg("--version").output().is_ok_and(|output| output.status.success());
        if !is_there {
            continue;
        }
        versions += 1;
        let version = python.trim_start_matches("python");
        for words in [&[][..], &["threads"]] {
            let outcome = profiled.python(python, words, "64KiB");
            assert_eq!((outcome.expect_success(), outcome.stderr.as_str()), ("", ""));
            let report = profiled.report(&profiled.file(), &[]);
            assert_eq!(report["profile"]["python"], version);
            expect_shares(&report, functions(version));
            assert_eq!(held_by(&report, "take"), 200 * MIB, "{report:#}");
            let of_weights = &report["holders"][0]["frames"];
            let lines: Vec<_> = of_weights.as_array().into_iter().flatten().map(|it| &it["line"]).collect();
            assert!(lines.contains(&&Value::from(30)), "{of_weights:#}");
            assert_eq!(lines.contains(&&Value::from(67)), words.is_empty(), "{of_weights:#}");
        }
    }
    if versions == 0 {
        skip("no python3.9 to python3.14 under its own name");
    }
}

/// The thread's state is freed while the thread is in a call.
#[test]
fn an_interpreter_that_ends_under_a_thread_does_no_harm() {
    let profiled = Profiled::new();
    for _ in 0..5 {
        let outcome = profiled.python("python3", &["end"], "4KiB");
        assert_eq!((outcome.expect_success(), outcome.stderr.as_str()), ("", ""));
    }
}

#[test]
fn a_refusal_names_the_largest_holders_with_a_profile_and_without() {
    let profiled = Profiled::new();
    if !profiled.reads_python("python3") {
        return;
    }
    let outcome = profiled.python("python3", &["refused"], "64KiB");
    assert_eq!(outcome.expect_success(), "refused");
    let named = |said: &str| {
        let (_, path) = said.split_once("the largest holders are in ").expect("a file");
        PathBuf::from(path.lines().next().unwrap_or_default())
    };
    let file = named(&outcome.stderr);
    assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    let report = profiled.report(&file, &[]);
    assert_eq!((&report["holders_by"], &report["asked_bytes"]), (&"site".into(), &(1_u64 << 40).into()));
    let method = if held_by(&report, "aktivierungen_für_schritt") > 0 {
        "aktivierungen_für_schritt"
    } else {
        "Modell.aktivierungen_für_schritt"
    };
    expect_shares(&report, ["weights", method, "cache"]);
    let enough = report["would_be_enough_bytes"].as_u64().expect("bytes");
    assert!(enough >= (1 << 40) + 200 * MIB, "{enough}");
    assert_eq!(report["devices"][0]["memory"]["device"]["live_bytes"], 200 * MIB);
    let refusals = profiled.report(&profiled.file(), &[]);
    assert_eq!(refusals["out_of_memory"][0]["asked_bytes"], 1_u64 << 40);

    // Pieces that follow each other are one range; the second refusal comes within the minute.
    let seg = Host::shimmed(profiled.program("seg"), &profiled.0, &profiled.1).args(["20"]);
    let seg = seg.env("WMSHIM_DEVICE_LIMIT", "100MiB").env("WMSHIM_OVERFLOW", "off").run();
    seg.expect_success();
    let report = profiled.report(&named(&seg.stderr), &[]);
    let holder = &report["holders"][0];
    assert_eq!((&report["holders_by"], &holder["bytes"]), (&"range".into(), &(100 * MIB).into()));
    assert_eq!((&holder["count"], &holder["kind"]), (&5.into(), &"piece".into()));
    let off = Host::shimmed(profiled.program("seg"), &profiled.0, &profiled.1).args(["20"]);
    let off = off.env("WMSHIM_DEVICE_LIMIT", "100MiB").env("WMSHIM_OVERFLOW", "off");
    let off = off.env("WMSHIM_STATS_SOCKET", "off").run();
    off.expect_success();
    assert!(off.stderr.contains("out of memory") && !off.stderr.contains("holders"), "{}", off.stderr);
}

#[test]
fn memory_that_a_program_makes_itself_is_held_by_its_maker_and_goes_with_it() {
    let profiled = Profiled::new();
    for (words, at_end) in [(&["10"][..], 200 * MIB), (&["10", "end"], 0)] {
        let outcome = profiled.host(profiled.program("seg"), "1MiB").args(words).run();
        assert_eq!((outcome.expect_success(), outcome.stderr.as_str()), ("10", ""));
        let report = profiled.report(&profiled.file(), &[]);
        assert_eq!((held_by(&report, "make"), held_by(&report, "main")), (200 * MIB, 200 * MIB));
        assert_eq!(
            (&report["at_end_bytes"], &report["holders"][0]["kind"]),
            (&at_end.into(), &"piece".into())
        );
    }
}

#[test]
fn callers_on_any_stack_are_read_without_harm() {
    let profiled = Profiled::new();
    let outcome = profiled.host(profiled.program("stacks"), "1KiB").run();
    assert_eq!((outcome.expect_success(), outcome.stderr.as_str()), ("", ""));
    let report = profiled.report(&profiled.file(), &[]);
    assert_eq!(report["at_end_bytes"], 21 * MIB, "{report:#}");
    // Of the stacks that are not the thread's own, and of a little one, nothing is read.
    let held = ["take", "ample"].map(|function| held_by(&report, function));
    assert_eq!(held, [12, 6].map(|mib| mib * MIB), "{report:#}");
}

/// Programs that live in the ways that break interposers, profiled at nearly each allocation.
#[test]
fn a_profiled_program_lives_as_any_other() {
    let profiled = Profiled::new();
    let life = profiled.program("life");
    for way in [
        &["race"][..],
        &["fork_before"],
        &["fork_in_use"],
        &["exec_in_use"],
        &["spawn_in_use"],
        &["exit_busy"],
        &["threads", "20"],
        &["thread_end"],
        &["little_stack"],
        &["late"],
        &["early"],
        &["closed"],
    ] {
        let file = format!("{}/%p.gz,1KiB", profiled.0.path().display());
        let host = Host::shimmed(&life, &profiled.0, &profiled.1).args(way).env("WMSHIM_PROFILE", file);
        let (outcome, code) = (host.run(), if way == ["exit_busy"] { 7 } else { 0 });
        assert_eq!(outcome.status.code(), Some(code), "{way:?}: {:?}", outcome.status);
        assert_eq!(outcome.stderr, "", "{way:?}");
    }
    let files = fs::read_dir(profiled.0.path()).expect("a folder").flatten().map(|entry| entry.path());
    let files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "gz")).collect();
    assert!(files.len() >= 10, "{files:?}");
    for file in files {
        let report = profiled.report(&file, &[]);
        assert_ne!(report["samples"], 0, "{report}");
    }
}

#[test]
fn a_thread_is_not_cancelled_while_its_callers_are_read() {
    let profiled = Profiled::new();
    let host = profiled.host(profiled.program("cancelled"), "1KiB");
    let outcome = host.env("XDG_CACHE_HOME", profiled.0.path()).run();
    assert!(outcome.expect_success().starts_with("returned 1, cancelled 1"), "{}", outcome.stdout);
}

#[test]
fn errno_is_kept() {
    let profiled = Profiled::new();
    let program = profiled.program("errno_kept");
    let bare = Host::bare(&program).env("LD_LIBRARY_PATH", &profiled.1).run();
    let outcome = profiled.host(&program, "1KiB").run();
    assert_eq!(outcome.expect_success(), bare.expect_success());
}

#[test]
fn a_file_that_cannot_be_written_is_one_line() {
    let profiled = Profiled::new();
    let (life, scratch) = (profiled.program("life"), &profiled.0);
    let thesis = scratch.file("thesis.txt", "my thesis");
    for (target, reason) in [
        ("/no/such/folder/p.gz,1B".to_owned(), "cannot be written"),
        (format!("{},1B", thesis.display()), "has something else in it"),
        ("/dev/stdout,1B".to_owned(), "is a link"),
    ] {
        let outcome = profiled.host(&life, "1KiB").args(["closed"]).env("WMSHIM_PROFILE", target).run();
        outcome.expect_success();
        let lines = outcome.log();
        assert!(lines.len() == 1 && lines[0].contains(reason), "{lines:?}");
    }
    assert_eq!(fs::read_to_string(thesis).expect("there"), "my thesis");
}
