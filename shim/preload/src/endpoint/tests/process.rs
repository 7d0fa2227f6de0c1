//! Hazard (process lifecycle): the endpoint changes state that is global to a process: signals,
//! fork, exit, `errno`, descriptors that the host closes.

use std::collections::HashSet;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::{Client, Fake, Scratch};
use crate::endpoint::{EndpointSettings, StatisticsEndpoint};

/// An endpoint that is up until the end of its test.
struct Running {
    scratch: Scratch,
    endpoint: &'static StatisticsEndpoint,
}

fn endpoint() -> &'static StatisticsEndpoint {
    Box::leak(Box::new(StatisticsEndpoint::new()))
}

impl Running {
    fn start(name: &str, signal: Option<i32>) -> Self {
        let scratch = Scratch::new(name);
        let directory = Some(scratch.path().to_owned());
        let settings = EndpointSettings { directory, enabled: true, signal, ..EndpointSettings::default() };
        let endpoint = endpoint();
        endpoint.start(settings, Box::leak(Box::new(Fake::default())));
        Self { scratch, endpoint }
    }

    fn socket(&self) -> PathBuf {
        self.scratch.path().join(format!("{}.sock", std::process::id()))
    }

    fn answers(&self) -> bool {
        Client::connect(&self.socket()).ask("stats")["schema"] == "wmshim-stats/2"
    }

    /// Waits for a dump: its name appears when it is complete.
    fn dump(&self) -> Option<serde_json::Value> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if let Some(path) = self.scratch.dumps().first() {
                return serde_json::from_slice(&fs::read(path).expect("the dump")).ok();
            }
            std::thread::yield_now();
        }
        None
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.endpoint.stop();
        self.endpoint.signal.release();
    }
}

/// Runs `check` in a forked child, and returns the child's verdict.
fn in_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls async-signal-safe functions and leaves with `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = i32::from(!check());
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for the child that was just made.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

fn handler_of(number: i32) -> libc::sighandler_t {
    // SAFETY: an all-zero `sigaction` is a valid value to overwrite.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only reads the disposition.
    unsafe { libc::sigaction(number, std::ptr::null(), &raw mut action) };
    action.sa_sigaction
}

/// All open sockets and pipes of this process: number and identity.
fn open_descriptors() -> HashSet<(i32, PathBuf)> {
    let entries = fs::read_dir("/proc/self/fd").expect("proc").map(|entry| entry.expect("entry"));
    let named = entries.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        Some((number, fs::read_link(entry.path()).ok()?))
    });
    let kinds = ["socket:", "pipe:"];
    named.filter(|(_, target)| kinds.iter().any(|kind| target.to_string_lossy().starts_with(kind))).collect()
}

/// Descriptors that have been opened since `before`, without this test's clients: the endpoint's.
fn opened_since(before: &HashSet<(i32, PathBuf)>) -> Vec<i32> {
    open_descriptors().difference(before).map(|(number, _)| *number).filter(|&number| number >= 100).collect()
}

#[test]
fn answers_when_start_returns_and_removes_its_file_at_exit() {
    let running = Running::start("lifetime", None);
    assert!(running.answers());
    running.endpoint.stop();
    assert!(!running.socket().exists());
}

#[test]
fn the_exit_gives_the_last_words_to_who_asked_for_them() {
    let running = Running::start("final", None);
    let (mut waiting, mut gone) = (Client::connect(&running.socket()), Client::connect(&running.socket()));
    gone.send(b"final\n");
    waiting.send(b"{\"request\":\"final\"}\n");
    drop(gone);
    assert!(running.answers(), "and others are served meanwhile");
    running.endpoint.stop();
    assert_eq!(waiting.answer()["schema"], "wmshim-stats/2");
}

#[test]
fn an_exit_that_nobody_waits_for_does_not_pause() {
    let running = Running::start("swift", None);
    let before = Instant::now();
    running.endpoint.stop();
    assert!(before.elapsed() < Duration::from_secs(2), "the longest pause is three seconds");
}

#[test]
fn disabled_means_nothing_at_all() {
    let scratch = Scratch::new("disabled");
    let directory = Some(scratch.path().to_owned());
    let settings = EndpointSettings {
        directory,
        enabled: false,
        signal: Some(libc::SIGUSR2),
        ..EndpointSettings::default()
    };
    endpoint().start(settings, Box::leak(Box::new(Fake::default())));
    assert_eq!(fs::read_dir(scratch.path()).expect("the directory").count(), 0);
}

#[test]
fn errno_survives_even_a_start_that_fails() {
    let scratch = Scratch::new("errno");
    let directory = Some(scratch.path().join("missing/parent"));
    let settings = EndpointSettings { directory, enabled: true, ..EndpointSettings::default() };
    // SAFETY: the C library's own accessor.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: this thread's `errno`.
    unsafe { *errno = libc::EDOM };
    let endpoint = endpoint();
    endpoint.start(settings, Box::leak(Box::new(Fake::default())));
    endpoint.stop();
    // SAFETY: as above.
    assert_eq!(unsafe { *errno }, libc::EDOM);
}

#[test]
fn descriptors_are_high_and_close_on_exec() {
    let before = open_descriptors();
    let _running = Running::start("high", None);
    let ours = opened_since(&before);
    assert!(ours.len() >= 3, "a listener and two ends of a pipe, not {ours:?}");
    for raw in ours {
        // SAFETY: reads the flags of an open descriptor.
        let flags = unsafe { libc::fcntl(raw, libc::F_GETFD) };
        assert!(flags & libc::FD_CLOEXEC != 0, "{raw}: {flags:#x}");
    }
}

#[test]
fn the_signal_writes_a_dump_and_interrupts_nobody() {
    let running = Running::start("signal", Some(libc::SIGUSR2));
    // SAFETY: signals this thread, whose handler is the endpoint's.
    unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
    let dump = running.dump().expect("a dump");
    assert_eq!(dump["schema"], "wmshim-dump/1");
    assert_eq!(dump["config"]["WMSHIM_STITCH"], "on");
}

#[test]
fn a_signal_that_the_program_uses_stays_the_programs() {
    // SAFETY: ignoring a signal is always sound.
    unsafe { libc::signal(libc::SIGUSR1, libc::SIG_IGN) };
    let running = Running::start("taken", Some(libc::SIGUSR1));
    assert_eq!(handler_of(libc::SIGUSR1), libc::SIG_IGN);
    assert!(running.answers());
}

#[test]
fn a_forked_child_keeps_nothing_and_leaves_the_parent_alone() {
    let before = open_descriptors();
    let running = Running::start("fork", Some(libc::SIGUSR2));
    let mut client = Client::connect(&running.socket());
    assert!(client.ask("stats").is_object());
    let inherited = opened_since(&before);
    assert!(inherited.len() >= 4);
    let clean = in_child(|| {
        running.endpoint.forked();
        running.endpoint.stop();
        // SAFETY: asks for the flags of a descriptor that should be closed.
        let closed = inherited.iter().all(|&raw| unsafe { libc::fcntl(raw, libc::F_GETFD) } == -1);
        closed && handler_of(libc::SIGUSR2) == libc::SIG_DFL
    });
    assert!(clean, "the child kept a descriptor or the signal");
    assert!(running.socket().exists() && running.answers());
    drop(client);
}

#[test]
fn a_child_that_only_exits_does_not_remove_the_parents_socket() {
    let running = Running::start("exit", None);
    assert!(in_child(|| {
        running.endpoint.stop();
        true
    }));
    assert!(running.socket().exists() && running.answers());
}

#[test]
fn a_host_that_closes_everything_never_finds_us_in_its_files() {
    let before = open_descriptors();
    let running = Running::start("closed", Some(libc::SIGUSR2));
    let ours = opened_since(&before);
    let path = running.scratch.path().join("host");
    let file = fs::File::create(&path).expect("a file of the host");
    for &raw in &ours {
        // SAFETY: as a daemon, this closes all numbers, and one file takes their place.
        unsafe { libc::dup2(file.as_raw_fd(), raw) };
    }
    // SAFETY: the handler must notice that the pipe is gone.
    unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
    let kept = in_child(|| {
        running.endpoint.forked();
        // SAFETY: asks whether the host's descriptors are still open.
        ours.iter().all(|&raw| unsafe { libc::fcntl(raw, libc::F_GETFD) } >= 0)
    });
    assert!(kept, "the child closed the host's files");
    assert_eq!(fs::metadata(&path).expect("metadata").len(), 0, "somebody wrote into the host's file");
}

#[test]
fn a_second_endpoint_falls_back_to_no_socket_and_stops_only_itself() {
    let running = Running::start("second", None);
    let second = endpoint();
    let directory = Some(running.scratch.path().to_owned());
    let file = running.scratch.path().join("final");
    let settings =
        EndpointSettings { directory, enabled: true, at_exit: Some(file.clone()), ..Default::default() };
    second.start(settings, Box::leak(Box::new(Fake::default())));
    second.stop();
    let written = fs::read(file).expect("the final statistics");
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&written).expect("JSON")["asked"], 1);
    assert!(running.socket().exists() && running.answers());
}
