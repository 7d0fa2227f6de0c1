//! Hazard (wrong report): `wmctl top` hangs on one program, misstates its figures, never ends, or
//! leaves the terminal in raw mode.

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Stdio};

use serde_json::Value;
use support::{Scratch, answers, stderr, stdout, wmctl};

#[test]
fn each_device_of_each_program_has_a_line() {
    let scratch = Scratch::new("top");
    scratch.serve(41, &answers(41));
    scratch.serve(42, &answers(42));
    let output = wmctl(&scratch).args(["top", "--once", "--interval", "0.02"]).output().expect("ran");
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(text.lines().count(), 3, "no program copies, so there is one table\n{text}");
    for (line, pid) in text.lines().skip(1).zip([" 41", " 42"]) {
        let cells: Vec<_> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        let expected = ["0", "130.0 GiB", "134.0 GiB", "140.0 GiB", "0 B", "50.0 GiB", "0", "python3"];
        assert_eq!(cells[0], pid.trim());
        // The user is that of the process that has this number, if there is one.
        assert_eq!(cells[2..], expected, "{text}");
    }
}

#[test]
fn json_is_one_line_a_table() {
    let scratch = Scratch::new("top-json");
    scratch.serve(41, &answers(41));
    let output =
        wmctl(&scratch).args(["top", "--once", "--json", "--interval", "0.02"]).output().expect("ran");
    let text = stdout(&output);
    assert_eq!(text.lines().count(), 1, "{text}");
    let table: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(table["schema"], "wmctl-top/1");
    assert!(table["interval_s"].as_f64().expect("a time") >= 0.02);
    assert_eq!(table["processes"][0]["devices"][0]["host_bytes"], 50_u64 << 30);
}

#[test]
fn without_a_program_once_is_an_error_that_says_what_to_do() {
    let scratch = Scratch::new("top-none");
    let output = wmctl(&scratch).args(["top", "--once", "--interval", "0.02"]).output().expect("ran");
    assert!(!output.status.success());
    assert!(stderr(&output).contains("wmctl run -- COMMAND"), "{}", stderr(&output));
}

/// A terminal's local flags: does it echo keys, and wait for whole lines?
fn flags(terminal: &OwnedFd) -> libc::tcflag_t {
    // SAFETY: an all-zero `termios` is a valid value to overwrite, and is overwritten.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &raw mut settings), 0);
        settings.c_lflag
    }
}

/// `wmctl top` at a terminal of its own.
struct Terminal {
    ours: File,
    theirs: OwnedFd,
    child: Child,
    seen: String,
    /// Its flags before the first use.
    before: libc::tcflag_t,
}

impl Terminal {
    fn start(scratch: &Scratch) -> Self {
        let (mut ours, mut theirs) = (-1, -1);
        let (name, settings, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
        // SAFETY: two places for new descriptors; the rest is optional.
        let (ours, theirs) = unsafe {
            assert_eq!(libc::openpty(&raw mut ours, &raw mut theirs, name, settings, size), 0);
            (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
        };
        let before = flags(&theirs);
        let end = || Stdio::from(theirs.try_clone().expect("a descriptor"));
        let mut command = wmctl(scratch);
        command.args(["top", "--interval", "0.2"]).stdin(end()).stdout(end()).stderr(end());
        // SAFETY: plain system calls between fork and exec: a session whose terminal standard input
        // is.
        unsafe {
            command.pre_exec(|| {
                assert!(libc::setsid() > 0 && libc::ioctl(0, libc::TIOCSCTTY, 0) == 0);
                Ok(())
            });
        }
        let child = command.spawn().expect("started");
        Self { ours, theirs, child, seen: String::new(), before }
    }

    fn until(&mut self, text: &str) {
        let mut buffer = [0; 4096];
        while !self.seen.contains(text) {
            let count = self.ours.read(&mut buffer).expect("the table goes on");
            self.seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        self.seen.clear();
    }
}

#[test]
fn keys_sort_and_end_it_and_the_terminal_is_as_it_was() {
    let scratch = Scratch::new("top-keys");
    scratch.serve(41, &answers(41));
    for (last, signal) in [(&b"q"[..], None), (b"\x03", Some(libc::SIGINT)), (b"", Some(libc::SIGTERM))] {
        let mut terminal = Terminal::start(&scratch);
        terminal.until("by PID; keys: p PID");
        assert_eq!(flags(&terminal.theirs) & (libc::ICANON | libc::ECHO), 0, "keys come one by one");
        terminal.ours.write_all(b"xh").expect("typed");
        terminal.until("by on host; keys: p PID");
        terminal.ours.write_all(last).expect("typed");
        if last.is_empty() {
            // SAFETY: plain system call; the process is a child of this test.
            assert_eq!(unsafe { libc::kill(terminal.child.id() as libc::pid_t, libc::SIGTERM) }, 0);
        }
        let status = terminal.child.wait().expect("ended");
        assert_eq!((status.success(), status.signal()), (signal.is_none(), signal));
        assert_eq!(flags(&terminal.theirs), terminal.before, "after {signal:?}");
    }
}
