//! Rules that hold for a process that did not ask for an endpoint.
//!
//! * [`service`]: clients that send garbage, do not read, vanish, or come by the thousand.
//! * [`process`]: fork, signals, exit, and a host that closes descriptors it never opened.
//! * [`places`]: directories and socket files that another user prepared.

mod places;
mod process;
mod service;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use serde_json::{Value, json};
use wm_driver::lock;

use super::dump::Dumps;
use super::exit_reply::ExitReply;
use super::server::EndpointServer;
use super::{ChangeRequest, PauseRequest, Source, run, signal, socket};
use wm_sockets::private_folder;

/// A source that counts the questions, and can be told to be large or to panic.
#[derive(Default)]
pub(super) struct Fake {
    asked: AtomicU64,
    block_count: usize,
    panics: bool,
}

impl Source for Fake {
    fn stats(&self) -> Value {
        assert!(!self.panics, "a source that fails");
        json!({ "schema": "wmshim-stats/2", "asked": self.asked.fetch_add(1, Ordering::Relaxed) + 1 })
    }

    fn blocks(&self) -> Value {
        json!(vec!["0x7f0000000000"; self.block_count])
    }

    fn config(&self) -> Value {
        json!({ "WMSHIM_STITCH": "on" })
    }

    fn pause(&self, pause: PauseRequest) -> Value {
        let deadline = pause.deadline.map(|deadline| deadline.as_secs_f64());
        json!({ "schema": "wmshim-pause/1", "deadline_s": deadline, "to": pause.place.map(|place| format!("{place:?}")) })
    }

    fn resume(&self) -> Value {
        json!({ "schema": "wmshim-pause/1", "pause": { "state": "resuming" } })
    }

    fn pause_prepare(&self) -> Value {
        json!({ "schema": "wmshim-pause/1", "pause": { "arena": { "is_filling": true } } })
    }

    fn pause_deep(&self) -> Value {
        json!({ "schema": "wmshim-pause/1", "pause": { "is_deep": true } })
    }

    fn pause_restored(&self) -> Value {
        json!({ "schema": "wmshim-pause/1", "pause": { "is_deep": false } })
    }

    fn pause_state(&self) -> Value {
        json!({ "schema": "wmshim-pause/1", "pause": { "state": "running" } })
    }

    fn change(&self, change: &ChangeRequest) -> Value {
        json!({ "schema": "wmshim-change/1", "made": format!("{change:?}") })
    }
}

/// The signal and the descriptors are the process's, and some tests count those: tests that share a
/// process take turns.
static TURN: Mutex<()> = Mutex::new(());

/// A directory of this test's own, removed afterwards.
pub(super) struct Scratch(PathBuf, #[expect(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

impl Scratch {
    pub(super) fn new(name: &str) -> Self {
        let turn = lock(&TURN);
        let path = std::env::temp_dir().join(format!("wmshim-test-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        private_folder::directory(Some(&path)).expect("a fresh directory");
        Self(path, turn)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The finished dumps.
    pub(super) fn dumps(&self) -> Vec<PathBuf> {
        let entries =
            std::fs::read_dir(&self.0).expect("the directory").map(|entry| entry.expect("entry").path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "json")).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A client of an endpoint.
pub(super) struct Client(BufReader<UnixStream>);

impl Client {
    pub(super) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("the endpoint listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        Self(BufReader::new(stream))
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("the endpoint reads");
    }

    pub(super) fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("an answer within the timeout");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line:?} is no JSON: {error}"))
    }

    pub(super) fn ask(&mut self, request: &str) -> Value {
        self.send(format!("{request}\n").as_bytes());
        self.answer()
    }

    pub(super) fn stream(&self) -> &UnixStream {
        self.0.get_ref()
    }
}

/// Runs a server beside the process-wide endpoint. Returns its socket.
pub(super) fn serve(scratch: &Scratch, source: Fake) -> PathBuf {
    let path = scratch.path().join("test.sock");
    let bound = socket::bind(Some(&path), scratch.path()).expect("bound");
    let wake = signal::pipe().expect("a pipe");
    let dumps = Dumps::new(scratch.path().to_owned());
    let (source, exit_reply) = (Box::leak(Box::new(source)), Box::leak(Box::new(ExitReply::new())));
    run(EndpointServer::new(Some(bound.listener), wake, dumps, source, exit_reply)).expect("a thread");
    path
}
