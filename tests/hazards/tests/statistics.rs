//! Hazard (process lifecycle): the statistics endpoint outlives its process, answers for another
//! process, or disturbs its host.
//!
//! The endpoint's parts are tested beside their code; here the whole library runs in a program that
//! does not know it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hazards::resident::Resident;
use hazards::{Host, Scratch, c, driver};
use serde_json::Value;

/// Longest time for an answer.
const PATIENCE: Duration = Duration::from_secs(120);

fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).expect("the socket answers");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream
}

fn ask(socket: &Path, request: &str) -> Value {
    let mut stream = connect(socket);
    writeln!(stream, "{request}").expect("the endpoint listens");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("an answer");
    serde_json::from_str(&line).expect("JSON")
}

#[test]
fn the_socket_is_there_from_cuinit_to_exit() {
    let scratch = Scratch::new();
    let mut program = Resident::start(&scratch);
    program.say("nothing");
    let socket = program.socket();
    assert!(!socket.exists(), "before the first call");
    program.say("begin");
    let stats = ask(&socket, "stats");
    assert_eq!(
        (stats["schema"].as_str(), stats["pid"].as_u64()),
        (Some("wmshim-stats/2"), Some(program.id().into()))
    );
    assert_eq!(stats["devices"][0]["tiers"]["device"]["live_bytes"], 8 << 20, "{stats}");
    assert_eq!(program.end("exit"), "");
    assert!(!socket.exists(), "after the end");
}

#[test]
fn only_the_user_may_look() {
    let scratch = Scratch::new();
    let mut program = Resident::start(&scratch);
    program.say("begin");
    let mode = |path: &Path| fs::symlink_metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!((mode(program.statistics()), mode(&program.socket())), (0o700, 0o600));
}

#[test]
fn every_request_is_answered() {
    let scratch = Scratch::new();
    let mut program = Resident::start(&scratch);
    program.say("begin");
    for (request, schema) in
        [("stats", "wmshim-stats/2"), ("blocks", "wmshim-blocks/1"), ("config", "wmshim-config/2")]
    {
        let answer = ask(&program.socket(), &format!("{{\"request\":\"{request}\"}}"));
        assert_eq!(answer["schema"], schema, "{answer}");
    }
    let written = ask(&program.socket(), "dump");
    assert_eq!(written["schema"], "wmshim-dumped/1");
    let path = written["path"].as_str().expect("a path").to_owned();
    assert_eq!(dump(Path::new(&path))["schema"], "wmshim-dump/1");
    let refused = ask(&program.socket(), "coffee");
    assert!(refused["error"].is_string() && refused["schema"] == "wmshim-error/1", "{refused}");
}

/// A shown setting can be set again, and its effect on the device stands beside it.
#[test]
fn settings_are_told_as_they_are_written() {
    let scratch = Scratch::new();
    let set = [("WMSHIM_DEVICE_LIMIT", "48MiB"), ("WMSHIM_STATS_SIGNAL", "USR2"), ("SIMCUDA_MEMORY", "1GiB")];
    let mut program = Resident::start_with(&scratch, &set);
    program.say("begin");
    let config = ask(&program.socket(), "config");
    let settings = &config["settings"];
    for (name, value) in [
        ("WMSHIM_DEVICE_LIMIT", "48MiB"),
        ("WMSHIM_STATS_SIGNAL", "USR2"),
        ("WMSHIM_OVERFLOW", "host"),
        ("WMSHIM_STITCH", "on"),
        ("WMSHIM_LOG", "warn"),
    ] {
        assert_eq!(settings[name], value, "{config}");
    }
    assert_eq!(settings["WMSHIM_HEADROOM"], Value::Null, "no program set it");
    let device = &config["devices"][0];
    assert_eq!(
        (&device["device_limit_bytes"], &device["headroom_bytes"]),
        (&(48 << 20).into(), &(32 << 20).into())
    );
    assert!(!config.to_string().contains("Some("), "{config}");
}

#[test]
fn the_last_words_go_into_a_file_that_was_not_there() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "life");
    let run = |words: &Path| {
        let host = Host::shimmed(&program, &scratch, &driver).args(["closed"]);
        let outcome = host.env("WMSHIM_STATS_AT_EXIT", words).run();
        outcome.expect_success();
        outcome.stderr
    };
    let words = scratch.folder("words");
    // A program of one call, many times: also the shortest program writes its dump.
    for _ in 0..20 {
        assert_eq!(run(&words.join("%p.json")), "");
    }
    let files: Vec<_> =
        fs::read_dir(&words).expect("the folder").flatten().map(|entry| entry.path()).collect();
    assert_eq!(files.len(), 20);
    for file in files {
        let said = dump(&file);
        let own = file.file_stem().and_then(|name| name.to_str()?.parse::<u32>().ok());
        assert_eq!(
            (said["schema"].as_str(), said["pid"].as_u64()),
            (Some("wmshim-stats/2"), own.map(u64::from))
        );
        assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    }
    let thesis = scratch.file("thesis.txt", "my thesis");
    let said = run(&thesis);
    assert!(said.contains("exists and is left as it is"), "{said}");
    assert_eq!(fs::read_to_string(&thesis).expect("there"), "my thesis");
}

/// A folder in memory must not be filled by a signal in a loop.
#[test]
fn many_signals_are_few_dumps() {
    let scratch = Scratch::new();
    let mut program = Resident::start_with(&scratch, &[("WMSHIM_STATS_SIGNAL", "USR2")]);
    program.say("begin");
    let begin = Instant::now();
    let signal = || {
        // SAFETY: plain system call; the process is a child of this test.
        assert_eq!(unsafe { libc::kill(program.id() as libc::pid_t, libc::SIGUSR2) }, 0);
    };
    // Signals that are pending become one, so the others are sent once the first one was served.
    signal();
    appears(&program.statistics().join(format!("{}-1.json", program.id())));
    for _ in 0..2000 {
        signal();
        std::thread::yield_now();
    }
    // The dump for the last signal is written too.
    appears(&program.statistics().join(format!("{}-2.json", program.id())));
    let (took, id) = (begin.elapsed(), program.id());
    let dumps = fs::read_dir(program.statistics()).expect("the folder").flatten();
    let dumps = dumps.filter(|it| it.file_name().to_string_lossy().starts_with(&format!("{id}-"))).count();
    assert!(dumps as u64 <= took.as_secs() + 2, "{dumps} dumps in {took:?}");
    assert_eq!(program.end("exit"), "");
}

#[test]
fn a_process_keeps_a_hundred_dumps_at_most() {
    let scratch = Scratch::new();
    let mut program = Resident::start(&scratch);
    program.say("begin");
    for _ in 0..100 {
        assert!(ask(&program.socket(), "dump")["path"].is_string());
    }
    let refused = ask(&program.socket(), "dump");
    let error = refused["error"].as_str().expect("an error").to_owned();
    assert!(error.contains("100 of this process") && error.contains("remove some"), "{error}");
    fs::remove_file(program.statistics().join(format!("{}-1.json", program.id()))).expect("there");
    assert!(ask(&program.socket(), "dump")["path"].is_string(), "there is room again");
}

/// Hazard: `WMSHIM_STATS_DIR` names a folder in which the user has other files.
#[test]
fn a_dump_empties_no_file_that_is_there() {
    let scratch = Scratch::new();
    let mut program = Resident::start(&scratch);
    program.say("begin");
    let name = |end: &str| program.statistics().join(format!("{}-{end}", program.id()));
    let theirs = [name("1.json.new"), name("2.json")];
    theirs.iter().for_each(|file| fs::write(file, "precious").expect("a file"));
    let answer = ask(&program.socket(), "dump");
    assert_eq!(answer["path"].as_str().map(Path::new), Some(&*name("3.json")), "{answer}");
    theirs.iter().for_each(|file| assert_eq!(fs::read_to_string(file).expect("there"), "precious"));
}

fn dump(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("the dump")).expect("JSON")
}

#[test]
fn a_forked_child_does_not_answer_for_its_parent() {
    let scratch = Scratch::new();
    let mut program = Resident::start(&scratch);
    program.say("begin");
    let child = program.say("fork");
    let stats = ask(&program.socket(), "stats");
    assert_eq!(stats["pid"], program.id(), "the parent still answers");
    let theirs = program.statistics().join(format!("{child}.sock"));
    assert!(!theirs.exists(), "the child has no endpoint");
    // The child's descriptors must not keep the parent's socket alive.
    let held: Vec<_> = fs::read_dir(format!("/proc/{child}/fd"))
        .expect("the child lives")
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .collect();
    assert!(held.is_empty(), "the child holds {held:?}");
    program.say("reap");
    assert_eq!(ask(&program.socket(), "stats")["pid"], program.id(), "the child's end changed nothing");
}

#[test]
fn readers_that_vanish_or_are_silent_disturb_nobody() {
    let scratch = Scratch::new();
    let mut program = Resident::start(&scratch);
    program.say("begin");
    let silent = connect(&program.socket());
    for _ in 0..50 {
        let mut vanishing = connect(&program.socket());
        writeln!(vanishing, "blocks").expect("the endpoint listens");
    }
    let mut garbage = connect(&program.socket());
    garbage.write_all(&[0xff; 4096]).expect("the endpoint listens");
    assert_eq!(ask(&program.socket(), "stats")["schema"], "wmshim-stats/2");
    program.say("begin");
    drop(silent);
    assert_eq!(program.end("exit"), "");
}

#[test]
fn the_signal_writes_a_dump() {
    let scratch = Scratch::new();
    let mut program = Resident::start_with(&scratch, &[("WMSHIM_STATS_SIGNAL", "USR2")]);
    program.say("begin");
    // SAFETY: plain system call; the process is a child of this test.
    assert_eq!(unsafe { libc::kill(program.id() as libc::pid_t, libc::SIGUSR2) }, 0);
    let content = dump(&appears(&program.statistics().join(format!("{}-1.json", program.id()))));
    assert_eq!(content["stats"]["pid"], program.id());
    assert_eq!(program.end("exit"), "");
}

#[test]
fn a_signal_that_nobody_asked_for_does_what_it_does() {
    let scratch = Scratch::new();
    let mut program = Resident::start(&scratch);
    program.say("begin");
    assert_eq!(program.end_by(libc::SIGUSR2), Some(libc::SIGUSR2));
}

/// The driver answers no more when the last statistics are written: here, from the second query on.
#[test]
fn the_last_answer_names_the_device() {
    let scratch = Scratch::new();
    let silent = [("SIMCUDA_FAIL", "cuDeviceGetName:2+,cuDeviceTotalMem:2+"), ("SIMCUDA_MEMORY", "1GiB")];
    let mut program = Resident::start_with(&scratch, &silent);
    program.say("begin");
    let mut stream = connect(&program.socket());
    writeln!(stream, "final").expect("the endpoint listens");
    for _ in 0..2 {
        is_named(&ask(&program.socket(), "stats")["devices"][0]);
    }
    assert_eq!(program.end("exit"), "");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("an answer");
    is_named(&serde_json::from_str::<Value>(&line).expect("JSON")["devices"][0]);
}

fn is_named(device: &Value) {
    assert_eq!(
        (device["name"].as_str(), device["total_bytes"].as_u64()),
        (Some("Simulated GPU"), Some(1 << 30))
    );
}

/// Waits until a file has its name; it is then complete.
fn appears(path: &Path) -> PathBuf {
    let begin = Instant::now();
    while !path.exists() {
        assert!(begin.elapsed() < PATIENCE, "{} does not appear", path.display());
        std::thread::yield_now();
    }
    path.to_owned()
}

#[test]
fn an_end_without_handlers_leaves_a_socket_that_refuses() {
    let scratch = Scratch::new();
    let mut program = Resident::start(&scratch);
    program.say("begin");
    let socket = program.socket();
    program.end("stop");
    assert!(UnixStream::connect(&socket).is_err(), "no process answers for a dead one");
}

#[test]
fn the_endpoint_can_be_turned_off() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "life");
    let host = Host::shimmed(program, &scratch, &driver).args(["closed"]).env("WMSHIM_STATS_SOCKET", "off");
    host.run().expect_success();
    assert!(!scratch.path().join("stats").exists(), "not even its folder is made");
}

#[test]
fn a_folder_that_cannot_be_used_is_one_line_and_no_more() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let file = scratch.file("a-file", "");
    let program = c::cuda_program(&scratch, "life");
    let host = Host::shimmed(program, &scratch, &driver).args(["closed"]).env("WMSHIM_STATS_DIR", &file);
    let outcome = host.run();
    outcome.expect_success();
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("WMSHIM_STATS_DIR"), "the remedy is named: {}", outcome.stderr);
}
