//! Hazard (process lifecycle): a log line goes to a stream that is not the shim's, to one that is
//! closed, or re-enters the library.
//!
//! Standard output belongs to the program; machines read many such outputs. Standard error may be
//! closed, full, or a pipe without a reader, and a program that never writes there must not notice
//! our lines.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use hazards::{Host, Scratch, c, driver};

/// `life race` with the most detailed log: many threads log during calls.
fn talkative(scratch: &Scratch) -> Host {
    let driver = driver::simulated(scratch);
    let program = c::cuda_program(scratch, "life");
    Host::shimmed(program, scratch, &driver).args(["race"]).env("WMSHIM_LOG", "trace")
}

/// A pipe's reading and writing end.
fn pipe() -> [OwnedFd; 2] {
    let mut ends = [0; 2];
    // SAFETY: writes two descriptors to an array of two.
    let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(made, 0);
    // SAFETY: a new descriptor without another owner.
    ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) })
}

#[test]
fn the_log_goes_to_standard_error_and_nothing_to_standard_output() {
    let scratch = Scratch::new();
    let outcome = talkative(&scratch).run();
    assert_eq!(outcome.expect_success(), "");
    assert!(!outcome.log().is_empty(), "a talkative log says something");
    assert_eq!(
        outcome.log().len(),
        outcome.stderr.lines().count(),
        "every line is marked:\n{}",
        outcome.stderr
    );
}

#[test]
fn standard_error_is_closed() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "life");
    let script = format!("exec '{}' race 2>&-", program.display());
    let host = Host::shimmed("sh", &scratch, &driver).args(["-c", &script]).env("WMSHIM_LOG", "trace");
    assert_eq!(host.run().expect_success(), "");
}

#[test]
fn standard_error_is_full() {
    let scratch = Scratch::new();
    let [reader, writer] = pipe();
    // SAFETY: plain system call on a descriptor of ours.
    unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    let mut writer = File::from(writer);
    while writer.write(&[b'x'; 4096]).is_ok() {}
    let outcome = talkative(&scratch).stderr(writer).run();
    assert_eq!(outcome.expect_success(), "");
    let mut text = Vec::new();
    File::from(reader).read_to_end(&mut text).expect("the pipe");
    assert!(text.iter().all(|byte| *byte == b'x'), "the pipe was full before the program began");
}

#[test]
fn the_reader_of_standard_error_is_gone() {
    let scratch = Scratch::new();
    let [reader, writer] = pipe();
    drop(reader);
    let outcome = talkative(&scratch).stderr(writer).run();
    assert_eq!(outcome.expect_success(), "", "a log line must not end the program with SIGPIPE");
}

#[test]
fn a_forked_child_may_log() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let program = c::cuda_program(&scratch, "life");
    let host = Host::shimmed(program, &scratch, &driver).args(["fork_in_use"]).env("WMSHIM_LOG", "trace");
    assert!(host.run().expect_success().contains("cuMemAlloc 3\n"));
}

/// A host that writes a line for each of some refusals, into this file.
fn into_file(scratch: &Scratch, driver: &Path, name: &str) -> Host {
    let file = scratch.path().join(name);
    Host::shimmed(c::cuda_program(scratch, "refused"), scratch, driver).env("WMSHIM_LOG_FILE", file)
}

/// The lines are the file's alone, also those of a wrong setting, and stay with those before.
#[test]
fn the_log_goes_to_a_file_of_the_users_choice() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let file = scratch.path().join("a log of %p");
    std::fs::write(&file, "before\n").expect("written");
    let host = into_file(&scratch, &driver, "a log of %p").env("WMSHIM_STITCH", "maybe");
    let outcome = host.run();
    assert_eq!((outcome.expect_success(), outcome.stderr.as_str()), ("100", ""));
    let logs = || {
        let entries = std::fs::read_dir(scratch.path()).expect("a folder").flatten();
        entries.map(|entry| entry.path()).filter(|path| path.display().to_string().contains("a log of "))
    };
    assert_eq!(logs().count(), 2, "`%p` is the process");
    let path = logs().find(|path| *path != file).expect("the process's own");
    let text = std::fs::read_to_string(&path).expect("the log");
    let first = text.lines().next().unwrap_or_default();
    assert!(first.contains("WMSHIM_STITCH=maybe is not understood"), "{text}");
    assert_eq!(text.lines().count(), text.matches("wmshim[").count(), "{text}");
    assert_eq!(text.matches("out of memory").count(), 7, "{text}");
    std::fs::rename(&path, scratch.path().join("kept")).expect("renamed");
    std::os::unix::fs::symlink(scratch.path().join("kept"), scratch.path().join("link")).expect("a link");
    let outcome = into_file(&scratch, &driver, "kept").env("WMSHIM_LOG_FORMAT", "json").run();
    assert_eq!(outcome.stderr, "");
    let both = std::fs::read_to_string(scratch.path().join("kept")).expect("the log");
    let added = both.strip_prefix(&text).expect("lines are appended");
    for line in added.lines() {
        let object: serde_json::Value = serde_json::from_str(line).expect(line);
        assert!(object["time"].as_f64().is_some_and(|time| time > 1e9) && object["pid"].is_u64(), "{line}");
        assert_eq!(object["level"], "warning", "{line}");
        assert!(object["message"].as_str().is_some_and(|text| text.contains("out of memory")), "{line}");
    }
    assert_eq!(added.lines().count(), 7, "{added}");
}

/// A line that has no place in the file is not lost, and the program does not notice: a link, a
/// folder, a device, a pipe without a reader.
#[test]
fn a_file_that_takes_no_line_leaves_it_to_standard_error() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let at = |name: &str| scratch.path().join(name);
    std::os::unix::fs::symlink(at("elsewhere"), at("link")).expect("a link");
    let pipe = std::ffi::CString::new(at("pipe").into_os_string().into_encoded_bytes()).expect("a path");
    // SAFETY: a NUL-terminated path.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    for name in ["link", "pipe", "stats", "none/such", "/dev/full"] {
        let outcome = into_file(&scratch, &driver, name).run();
        assert_eq!(outcome.expect_success(), "100", "{name}");
        let lines = outcome.log();
        assert_eq!(lines.len(), 8, "{name}: {}", outcome.stderr);
        assert!(lines[0].contains("WMSHIM_LOG_FILE: /"), "{name}: {}", lines[0]);
    }
    assert!(!at("elsewhere").exists(), "a link is not followed");
}

/// A program that tries sizes until one fits must not get its terminal filled.
#[test]
fn of_many_refusals_few_are_said() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let outcome = Host::shimmed(c::cuda_program(&scratch, "refused"), &scratch, &driver).run();
    assert_eq!(outcome.expect_success(), "100");
    let said = outcome.log().into_iter().filter(|line| line.contains("out of memory")).count();
    assert_eq!(said, 7, "the 1st, 2nd, 4th, ... 64th: {}", outcome.stderr);
}

/// Hazard (silent degradation): the driver alone serves a program, and no line gives the reason.
#[test]
fn a_call_that_failed_inside_is_named_with_its_code_once() {
    let scratch = Scratch::new();
    let driver = driver::simulated(&scratch);
    let host = Host::shimmed(c::cuda_program(&scratch, "life"), &scratch, &driver).args(["closed"]);
    let outcome = host.env("SIMCUDA_FAIL", "cuMemMap:1+").run();
    outcome.expect_success();
    assert_eq!(outcome.log().len(), 1, "{}", outcome.stderr);
    for word in ["stepped aside", "CUDA_ERROR_OUT_OF_MEMORY", "calls that failed so far: cuMemMap)"] {
        assert!(outcome.stderr.contains(word), "{word:?} is not in {}", outcome.stderr);
    }
}
