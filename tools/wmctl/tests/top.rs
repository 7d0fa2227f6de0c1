//! Hazard (wrong report): `wmctl top` hangs on one program, misstates its figures, never ends, or
//! leaves the terminal in raw mode.

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Scratch, answers, marked_library, stderr, stdout, wmctl};

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

/// No rates are known then, and nothing is waited for.
#[test]
fn a_table_without_a_time_is_there_at_once() {
    let scratch = Scratch::new("top-at-once");
    scratch.serve(41, &answers(41));
    let output = wmctl(&scratch).args(["top", "--once", "--json"]).output().expect("ran");
    let table: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!((table["interval_s"].as_f64(), &table["processes"][0]["copies"]), (Some(0.0), &json!([])));
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
    fn start(scratch: &Scratch, kind: &str, words: &[&str]) -> Self {
        let (mut ours, mut theirs) = (-1, -1);
        let (name, settings) = (std::ptr::null_mut(), std::ptr::null());
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: two places for new descriptors; the rest is optional.
        let (ours, theirs) = unsafe {
            assert_eq!(libc::openpty(&raw mut ours, &raw mut theirs, name, settings, &raw const size), 0);
            (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs))
        };
        let before = flags(&theirs);
        let end = || Stdio::from(theirs.try_clone().expect("a descriptor"));
        let mut command = wmctl(scratch);
        command.env("TERM", kind).env("LC_ALL", "C.UTF-8").arg("top").args(words);
        command.stdin(end()).stdout(end()).stderr(end());
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

    /// What comes until this text, and the text.
    fn until(&mut self, text: &str) -> String {
        let mut buffer = [0; 4096];
        let end = loop {
            if let Some(at) = self.seen.find(text) {
                break at + text.len();
            }
            let count = self.ours.read(&mut buffer).expect("the screen goes on");
            self.seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        };
        self.seen.drain(..end).collect()
    }
}

/// What a terminal does with the alternate screen.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

#[test]
fn keys_sort_and_end_it_and_the_terminal_is_as_it_was() {
    let scratch = Scratch::new("top-keys");
    scratch.serve(41, &answers(41));
    for (last, signal) in [(&b"q"[..], None), (b"\x03", Some(libc::SIGINT)), (b"", Some(libc::SIGTERM))] {
        let mut terminal = Terminal::start(&scratch, "xterm", &["--interval", "0.2"]);
        terminal.until(ENTER);
        terminal.until("by PID  1 program on 1 device");
        assert_eq!(flags(&terminal.theirs) & (libc::ICANON | libc::ECHO), 0, "keys come one by one");
        terminal.ours.write_all(b"xh").expect("typed");
        // The heading is drawn again where its style changed.
        terminal.until("ON HOST");
        terminal.ours.write_all(last).expect("typed");
        if last.is_empty() {
            // SAFETY: plain system call; the process is a child of this test.
            assert_eq!(unsafe { libc::kill(terminal.child.id() as libc::pid_t, libc::SIGTERM) }, 0);
        }
        let status = terminal.child.wait().expect("ended");
        assert_eq!((status.success(), status.signal()), (signal.is_none(), signal));
        assert_eq!(flags(&terminal.theirs), terminal.before, "after {signal:?}");
        terminal.until(LEAVE);
    }
}

/// It is asked for four seconds, which no key has to wait for.
#[test]
fn a_program_that_does_not_answer_delays_no_key() {
    let scratch = Scratch::new("top-silent");
    let _silent = UnixListener::bind(scratch.path().join("41.sock")).expect("bound");
    let mut terminal = Terminal::start(&scratch, "xterm", &["--interval", "5"]);
    terminal.until(ENTER);
    let typed = Instant::now();
    terminal.ours.write_all(b"q").expect("typed");
    assert!(terminal.child.wait().expect("ended").success());
    assert!(typed.elapsed() < Duration::from_secs(2), "{:?}", typed.elapsed());
}

#[test]
fn a_terminal_that_cannot_place_its_cursor_gets_tables() {
    let scratch = Scratch::new("top-dumb");
    scratch.serve(41, &answers(41));
    let mut terminal = Terminal::start(&scratch, "dumb", &["--interval", "0.05"]);
    let seen = [terminal.until("OUT OF MEMORY"), terminal.until("OUT OF MEMORY")].concat();
    assert!(seen.contains("130.0 GiB") && !seen.contains('\x1b'), "{seen}");
    terminal.child.kill().and_then(|()| terminal.child.wait()).expect("ended");
}

/// A tmux server of its own, with one window.
struct Tmux<'a> {
    scratch: &'a Scratch,
}

impl<'a> Tmux<'a> {
    /// `None`: there is no tmux here.
    fn start(scratch: &'a Scratch, size: (u16, u16), line: &str) -> Option<Self> {
        let tmux = Self { scratch };
        let (columns, rows) = (size.0.to_string(), size.1.to_string());
        let words = ["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", &rows, "sh", "-c", line];
        let started = tmux.command().args(words).status().ok()?;
        assert!(started.success());
        Some(tmux)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        for (name, value) in wmctl(self.scratch).get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("LC_ALL", "C.UTF-8").env("LD_LIBRARY_PATH", self.scratch.path()).env_remove("TMUX");
        command.arg("-S").arg(self.scratch.path().join("tmux"));
        command
    }

    fn run(&self, words: &[&str]) -> String {
        let output = self.command().args(words).output().expect("tmux");
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        stdout(&output)
    }

    /// The screen, once it is as wanted.
    fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.run(&["capture-pane", "-p"]);
            if is_so(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "not {what}:\n{screen}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let _it_may_have_ended = self.command().arg("kill-server").output();
    }
}

/// What of NVIDIA's library is asked.
const MANAGEMENT_LIBRARY: &str = r#"
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) { *device = &*device; return strcmp(uuid, "GPU-1"); }
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) { memory[2] = 135ull << 30; return 0; }
"#;

#[test]
fn a_screen_is_drawn_scrolled_resized_and_gone_in_a_real_terminal() {
    let scratch = Scratch::new("top-tmux");
    for pid in 41..50 {
        let mut answers = answers(pid);
        answers["stats"]["devices"][0]["uuid"] = json!("GPU-1");
        scratch.serve(pid, &answers);
    }
    marked_library(&scratch, &scratch.path().join("libnvidia-ml.so.1"), MANAGEMENT_LIBRARY);
    let top = format!("{} top --interval 0.1", env!("CARGO_BIN_EXE_wmctl"));
    // The shell lives through an interrupt that ends what it waits for.
    let line = format!("trap : INT; echo before; {top}; echo again; read line; {top}; echo after; exec cat");
    let Some(tmux) = Tmux::start(&scratch, (80, 24), &line) else { return hazards::skip("needs tmux") };
    let drawn = tmux.until("what everything uses", |screen| screen.contains("all 135.0/140.0 GiB"));
    assert!(!drawn.contains("before") && drawn.contains("9 programs 1.2 TiB  on host 450.0 GiB"), "{drawn}");
    assert_eq!(drawn.lines().count(), 24, "{drawn}");

    tmux.run(&["resize-window", "-x", "40", "-y", "6"]);
    let small = tmux.until("narrow", |screen| screen.lines().count() == 6 && screen.contains("1-4/10"));
    assert!(small.contains(" ON HOST OUT OF MEMORY COMMAND\n"), "{small}");
    tmux.run(&["send-keys", "End", "o"]);
    let end = tmux.until("scrolled", |screen| screen.contains("7-10/10  by OUT OF MEMORY"));
    assert!(end.contains(" 49 ") && !end.contains(" 41 "), "{end}");
    tmux.run(&["resize-window", "-x", "200", "-y", "50"]);
    tmux.until("wide", |screen| screen.lines().count() == 50 && screen.contains("ON PEERS"));
    tmux.run(&["send-keys", "q"]);
    tmux.until("as before", |screen| screen.trim_end() == "before\nagain");
    tmux.run(&["send-keys", "Enter"]);
    tmux.until("again", |screen| screen.contains("9 programs on 1 device"));
    tmux.run(&["send-keys", "C-c"]);
    tmux.until("as before", |screen| screen.trim_end().ends_with("\nagain\n\nafter"));
}
