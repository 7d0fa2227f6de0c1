//! Hazard (wrong result): bytes of a paused process change in its files, or are taken for memory
//! before they are read. Hazard (resource leak): files stay behind. Hazard (deadlock): a resume
//! without room, or an exit, waits for ever.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hazards::paused::{PATIENCE, Served, paused};
use hazards::{Scratch, skip};
use serde_json::{Value, json};

const ON: (&str, &str) = ("WMSHIM_PAUSE", "on");

fn request(folder: &Path) -> String {
    json!({ "request": "pause", "to": folder }).to_string()
}

/// Bytes that are held of a tier, in MiB.
fn held(program: &mut Served, tier: &str) -> u64 {
    let stats = program.stats();
    stats["devices"][0]["memory"][tier]["reserved_bytes"].as_u64().expect("bytes") >> 20
}

fn problem(answer: &Value) -> &str {
    answer["pause"]["problem"].as_str().unwrap_or_default()
}

/// The files of a process in a folder, by the names that its descriptors have.
fn files(pid: u32, folder: &Path) -> Vec<PathBuf> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives");
    let lies = |path: &PathBuf| fs::read_link(path).is_ok_and(|name| name.starts_with(folder));
    descriptors.map(|one| one.expect("an entry").path()).filter(lies).collect()
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).expect("a folder").next().is_none()
}

#[test]
fn memory_lies_in_files_without_names_and_comes_back() {
    let scratch = Scratch::new();
    let folder = scratch.folder("away");
    let mut program = Served::start(&scratch, &[ON, ("SIMCUDA_MEMORY", "256MiB")]);
    for words in ["block 40", "block 3", "piece", "block 1", "block 1", "graph"] {
        assert!(program.say(words) >= 0);
    }
    let pid = program.ask("pause_state")["pid"].as_u64().expect("a number") as u32;
    for _ in 0..2 {
        let answer = program.request(&request(&folder));
        assert_eq!(answer["pause"]["state"], "paused", "{answer}");
        assert!(answer["pause"]["file_bytes"].as_u64() >= Some(52 << 20), "{answer}");
        assert_eq!((held(&mut program, "device"), held(&mut program, "host")), (0, 0), "the others have it");
        let files = files(pid, &folder);
        assert!(!files.is_empty() && is_empty(&folder), "no other process finds them by a name");
        let mode = |file: &PathBuf| fs::metadata(file).expect("it is open").permissions().mode() & 0o777;
        assert!(files.iter().all(|file| mode(file) == 0o600));
        program.say("touch");
        while program.ask("pause_state")["pause"]["is_awaited"] != true {}
        assert_eq!(program.say("touched"), 0, "the launch waits");
        assert_eq!(program.request("resume")["pause"]["state"], "running");
        assert_eq!((program.say("join"), program.say("check")), (0, 1));
        assert_eq!(program.place(), ("running".to_owned(), 53, 0));
        assert!(self::files(pid, &folder).is_empty(), "they are gone");
    }
    assert_eq!((program.say("replay"), program.say("check")), (0, 1));
    // To the host after that.
    assert_eq!((program.say("pause"), program.say("resume"), program.say("check")), (0, 0, 1));
    program.end();
}

/// On a device that is too small some of it lies on the host before, and after.
#[test]
fn memory_of_the_host_goes_to_files_too() {
    let scratch = Scratch::new();
    let folder = scratch.folder("away");
    let small = [ON, ("SIMCUDA_MEMORY", "64MiB"), ("WMSHIM_HEADROOM", "0")];
    let mut program = Served::start(&scratch, &small);
    (0..4).for_each(|_| assert!(program.say("block 24") > 0));
    assert!(program.place().2 > 0);
    assert_eq!(program.request(&request(&folder))["pause"]["state"], "paused");
    assert_eq!((held(&mut program, "device"), held(&mut program, "host")), (0, 0));
    assert_eq!(program.request("resume")["pause"]["state"], "running");
    let (_, on_device, on_host) = program.place();
    assert!(on_device + on_host == 96 && on_device >= 40, "{on_device}, {on_host}");
    program.say("touch");
    assert_eq!((program.say("join"), program.say("check")), (0, 1));
    program.end();
}

#[test]
fn what_threads_write_is_what_they_read_over_pauses_to_files() {
    let scratch = Scratch::new();
    let folder = scratch.folder("away");
    let place = ("PAUSE_DIR", folder.to_str().expect("a readable path"));
    let races = [ON, place, ("SIMCUDA_RACES", "1"), ("SIMCUDA_SEED", "4")];
    let outcome = paused(&scratch, &["threads", "4", "3", "10"], &races).run();
    let line = outcome.expect_success().lines().last().expect("a line").to_owned();
    let figures: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(figures["pause"]["pauses"], 10, "{figures}");
    assert!(is_empty(&folder));
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_and_nothing_changes() {
    let scratch = Scratch::new();
    let file = scratch.path().join("file");
    fs::write(&file, "no folder").expect("written");
    let mut program = Served::start(&scratch, &[ON]);
    program.say("block 16");
    for folder in [Path::new("/proc/self/fdinfo"), &scratch.path().join("missing"), &file] {
        let answer = program.request(&request(folder));
        assert!(problem(&answer).contains("files in the folder"), "{folder:?}: {answer}");
        assert_eq!(program.place(), ("running".to_owned(), 16, 0));
    }
    for to in [json!("away"), json!(7)] {
        let answer = program.ask(&json!({ "request": "pause", "to": to }).to_string());
        assert!(answer["error"].as_str().is_some_and(|it| it.contains("absolute")), "{answer}");
    }
    program.say("touch");
    assert_eq!((program.say("join"), program.say("check")), (0, 1));
    program.end();
}

/// Hazard: a full disk in the middle.
#[test]
fn without_room_in_the_folder_nothing_leaves() {
    let scratch = Scratch::new();
    let folder = scratch.folder("away");
    let text = folder.to_str().expect("a readable path");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=16m", "none", text])
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        return skip("needs a small file system");
    }
    let mut program = Served::start(&scratch, &[ON]);
    program.say("block 24");
    let answer = program.request(&request(&folder));
    let place = program.place();
    program.say("touch");
    let right = (program.say("join"), program.say("check"));
    program.end();
    let unmounted = std::process::Command::new("umount").arg(text).output().expect("it runs");
    assert!(unmounted.status.success(), "no file is open there");
    assert!(problem(&answer).contains("no room"), "{answer}");
    assert_eq!((place, right), (("running".to_owned(), 24, 0), (0, 1)));
}

#[test]
fn a_call_brings_it_back_where_that_is_wanted() {
    let scratch = Scratch::new();
    let folder = scratch.folder("away");
    let mut program = Served::start(&scratch, &[("WMSHIM_PAUSE", "auto")]);
    program.say("block 16");
    assert_eq!(program.request(&request(&folder))["pause"]["state"], "paused");
    program.say("touch");
    assert_eq!((program.say("join"), program.say("check")), (0, 1));
    assert_eq!(program.place(), ("running".to_owned(), 16, 0));
    program.end();
}

/// Hazard (process lifecycle): a call in an exit handler waits for ever, or reads memory that is
/// not there.
#[test]
fn a_process_exits_whose_memory_is_in_files() {
    let scratch = Scratch::new();
    let folder = scratch.folder("away");
    let mut program = Served::start(&scratch, &[ON]);
    program.say("block 16");
    assert_eq!(program.request(&request(&folder))["pause"]["state"], "paused");
    program.tell("fork");
    assert!(program.hear().starts_with("3 3 "));
    program.end();
    assert!(is_empty(&folder));
}

#[test]
fn a_killed_process_leaves_no_file() {
    let scratch = Scratch::new();
    let folder = scratch.folder("away");
    let mut program = Served::start(&scratch, &[ON]);
    program.say("block 64");
    program.ask(&request(&folder));
    program.kill();
    assert!(is_empty(&folder));
}

/// The resume waits, and says for what.
#[test]
fn a_resume_without_any_room_goes_on_when_there_is() {
    let scratch = Scratch::new();
    let folder = scratch.folder("away");
    let shared = scratch.path().join("machine").to_string_lossy().into_owned();
    let machine = [
        ON,
        ("SIMCUDA_MEMORY", "128MiB"),
        ("SIMCUDA_SHARED", &shared),
        ("WMSHIM_HEADROOM", "0"),
        ("WMSHIM_HOST_LIMIT", "8MiB"),
    ];
    let mut first = Served::start(&scratch, &machine);
    assert_eq!(first.say("block 96"), 1);
    assert_eq!(first.request(&request(&folder))["pause"]["state"], "paused");
    let other = Scratch::new();
    let mut second = Served::start(&other, &machine);
    assert_eq!(second.say("block 96"), 1);
    first.ask("resume");
    let begin = Instant::now();
    loop {
        let answer = first.ask("pause_state");
        assert_eq!(answer["pause"]["state"], "resuming", "{answer}");
        if problem(&answer).contains("room") {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{answer}");
    }
    second.end();
    while first.ask("pause_state")["pause"]["state"] != "running" {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((first.say("check"), first.place()), (1, ("running".to_owned(), 96, 0)));
    assert_eq!(first.stats()["pause"]["problem"], Value::Null);
    first.end();
}

/// Hazard (wrong result): a file that lacks bytes is taken for memory.
#[test]
fn what_cannot_be_read_stays_away_and_the_process_stays_paused() {
    let scratch = Scratch::new();
    let folder = scratch.folder("away");
    let mut program = Served::start(&scratch, &[ON]);
    program.say("block 64");
    let answer = program.request(&request(&folder));
    let pid = answer["pid"].as_u64().expect("a number") as u32;
    let file = files(pid, &folder).pop().expect("a file");
    let length = fs::metadata(&file).expect("it is open").len();
    let cut = OpenOptions::new().write(true).open(&file).expect("the same user's");
    let first = fs::read(&file).expect("its bytes");
    cut.set_len(0).expect("cut");
    for _ in 0..2 {
        let answer = program.request("resume");
        assert_eq!(answer["pause"]["state"], "paused", "{answer}");
        assert!(problem(&answer).contains("cannot be read"), "{answer}");
    }
    // The disk is there again.
    fs::write(&file, &first[..length as usize]).expect("written");
    assert_eq!(program.request("resume")["pause"]["state"], "running");
    assert_eq!((program.say("check"), program.place()), (1, ("running".to_owned(), 64, 0)));
    program.end();
}

/// Hazard (error handling): a call of the driver fails on the way, and bytes are lost.
#[test]
fn a_call_of_the_driver_that_fails_loses_no_byte() {
    let functions =
        ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync"];
    let run = |failing: &str| {
        let scratch = Scratch::new();
        let folder = scratch.folder("away");
        let place = ("PAUSE_DIR", folder.to_str().expect("a readable path"));
        let mut program = Served::start(&scratch, &[ON, place, ("SIMCUDA_FAIL", failing)]);
        for words in ["block 9", "block 1", "piece", "block 20"] {
            assert!(program.say(words) > 0, "{failing}: {words}");
        }
        let calls = program.stats()["driver_calls"].clone();
        for _ in 0..2 {
            program.say("pause");
            // What could not be copied back is tried again.
            let resumed = program.say("resume");
            assert!(resumed == 0 || program.say("resume") == 0, "{failing}");
            assert_eq!(program.say("check"), 1, "{failing}");
            program.say("touch");
            assert_eq!((program.say("join"), program.say("check")), (0, 1), "{failing}");
        }
        program.end();
        calls
    };
    let before = run("");
    for function in functions {
        let made = before.as_array().expect("calls").iter().find(|call| call["name"] == function);
        let made = made.map_or(0, |call| call["count"].as_u64().expect("a count")) + 1;
        for later in [1, 5] {
            run(&format!("{function}:{}", made + later));
        }
    }
}

/// A process that ends while files are written.
#[test]
fn a_process_ends_in_the_middle_of_a_pause_to_files() {
    for words in ["pause", "resume"] {
        let scratch = Scratch::new();
        let folder = scratch.folder("away");
        let mut program = Served::start(&scratch, &[ON, ("SIMCUDA_LINKS", "pcie=1GB/s")]);
        (0..6).for_each(|_| assert!(program.say("block 32") > 0));
        if words == "resume" {
            assert_eq!(program.request(&request(&folder))["pause"]["state"], "paused");
            program.ask("resume");
        } else {
            program.ask(&request(&folder));
        }
        let _log = program.end();
        assert!(is_empty(&folder), "{words}");
    }
}

/// Hazard (resource leak): a child has inherited the files of its paused parent, as a worker of a
/// data loader does, and their bytes fill the disk for as long as it lives.
#[test]
fn a_child_does_not_keep_the_bytes_of_its_parent() {
    let scratch = Scratch::new();
    let folder = scratch.folder("away");
    let mut program = Served::start(&scratch, &[ON]);
    program.say("block 32");
    assert_eq!(program.request(&request(&folder))["pause"]["state"], "paused");
    let child = program.say("child") as u32;
    let kept = || {
        let bytes = |file: &PathBuf| fs::metadata(file).expect("it is open").blocks() * 512;
        files(child, &folder).iter().map(bytes).sum::<u64>()
    };
    assert!(kept() >= 32 << 20, "the child has none: nothing is said");
    assert_eq!(program.request("resume")["pause"]["state"], "running");
    // The program goes on first.
    let begin = Instant::now();
    while kept() > 0 {
        assert!(begin.elapsed() < PATIENCE, "the child keeps {} bytes", kept());
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(program.say("check"), 1);
    // SAFETY: a signal to a process that this test has started.
    assert_eq!(unsafe { libc::kill(child as i32, libc::SIGKILL) }, 0);
    program.end();
}

/// Hazard (process lifecycle): the system sends a signal that ends a program where a file is larger
/// than the process may have.
#[test]
fn limits_of_the_process_are_errors_and_nothing_changes() {
    let scratch = Scratch::new();
    let folder = scratch.folder("away");
    let place = ("PAUSE_DIR", folder.to_str().expect("a readable path"));
    let mut program = Served::start(&scratch, &[ON, place]);
    program.say("block 32");
    let pid = program.ask("pause_state")["pid"].as_u64().expect("a number") as i32;
    for (resource, limit, code) in [(libc::RLIMIT_FSIZE, 1 << 20, 2), (libc::RLIMIT_NOFILE, 3, 304)] {
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: both values live, and the process is this test's.
        assert_eq!(unsafe { libc::prlimit(pid, resource, std::ptr::null(), &raw mut before) }, 0);
        let less = libc::rlimit { rlim_cur: limit, ..before };
        // SAFETY: as above.
        assert_eq!(unsafe { libc::prlimit(pid, resource, &raw const less, std::ptr::null_mut()) }, 0);
        assert_eq!(program.say("pause"), code, "{resource}");
        // SAFETY: as above.
        assert_eq!(unsafe { libc::prlimit(pid, resource, &raw const before, std::ptr::null_mut()) }, 0);
        assert_eq!((program.say("check"), program.place()), (1, ("running".to_owned(), 32, 0)));
    }
    assert_eq!((program.say("pause"), program.say("resume"), program.say("check")), (0, 0, 1));
    program.end();
}

/// A program of C gets the code of an operating system that refuses.
#[test]
fn the_code_of_a_folder_that_is_none() {
    let scratch = Scratch::new();
    let mut program = Served::start(&scratch, &[ON, ("PAUSE_DIR", "/proc/self/missing")]);
    program.say("block 8");
    assert_eq!(program.say("pause"), 304);
    assert_eq!((program.say("check"), program.place()), (1, ("running".to_owned(), 8, 0)));
    program.end();
}
