//! `wmctl run --stats`: a program's statistics after it has ended.
//!
//! A program takes its statistics with it, so it is asked beforehand: a client per process of its tree sends `final`
//! and waits; the endpoint answers when the process exits. A process that is killed answers nobody: for it the last
//! reading counts, which is refreshed while it runs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::client::{self, Endpoint};
use crate::stats;

use super::signals;

/// How often new processes are looked for: a program that ends sooner after its first CUDA call is missed.
const LOOK: Duration = Duration::from_millis(5);
/// Every how many looks a reading is taken.
const READ: u32 = 100;

/// A process of the program's tree that has an endpoint.
struct Followed {
    endpoint: Endpoint,
    last: Option<Value>,
    at_exit: JoinHandle<Option<Value>>,
}

/// Runs the program, prints its statistics, and returns its exit code. Sockets are looked for in `places`.
///
/// # Errors
/// A program that cannot be started.
pub(super) fn follow(mut command: Command, places: &[PathBuf], as_json: bool) -> Result<ExitCode> {
    signals::prepare();
    let mut child = command.spawn()?;
    let pid = child.id();
    signals::leave_to(pid);
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || {
        let status = child.wait();
        signals::forget();
        sender.send(status)
    });
    let (followed, status) = watch(pid, places, &ended)?;
    print(followed, as_json);
    Ok(exit_code(status))
}

/// Follows every process of the tree until its root has ended.
fn watch(
    root: u32,
    places: &[PathBuf],
    ended: &Receiver<std::io::Result<ExitStatus>>,
) -> Result<(Vec<Followed>, ExitStatus)> {
    let mut followed: BTreeMap<u32, Followed> = BTreeMap::new();
    for look in 1.. {
        match ended.recv_timeout(LOOK) {
            Ok(status) => return Ok((followed.into_values().collect(), status?)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let known = |endpoint: &Endpoint| followed.contains_key(&endpoint.pid);
        let fresh = client::candidates(places).into_iter().filter(|endpoint| !known(endpoint));
        let fresh: Vec<_> = fresh.filter(|endpoint| descends(endpoint.pid, root)).collect();
        followed.extend(fresh.into_iter().map(|endpoint| (endpoint.pid, Followed::new(endpoint))));
        if look % READ == 0 {
            followed.values_mut().for_each(Followed::read);
        }
    }
    anyhow::bail!("lost sight of the program")
}

impl Followed {
    fn new(endpoint: Endpoint) -> Self {
        let socket = endpoint.socket.clone();
        let at_exit = thread::spawn(move || client::ask_patiently(&socket, "final").ok());
        Self { endpoint, last: None, at_exit }
    }

    fn read(&mut self) {
        if let Ok(answer) = client::ask(&self.endpoint.socket, "stats") {
            self.last = Some(answer);
        }
    }

    /// What the process said at its exit, or last.
    fn finish(self) -> Option<Value> {
        // A process of the tree that outlives its root is still there to be asked.
        let living = client::ask(&self.endpoint.socket, "stats").ok();
        if living.is_some() { living } else { self.at_exit.join().ok().flatten().or(self.last) }
    }
}

/// Is `pid` the process `root`, or a descendant of it?
fn descends(mut pid: u32, root: u32) -> bool {
    while pid > 1 {
        if pid == root {
            return true;
        }
        pid = parent(pid).unwrap_or(0);
    }
    false
}

/// The parent's process id: the second field after the command's name, which is in parentheses and may hold anything.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn print(followed: Vec<Followed>, as_json: bool) {
    let answers: Vec<_> = followed.into_iter().filter_map(Followed::finish).collect();
    if as_json {
        eprintln!("{}", json!({ "schema": "wmctl-run-stats/1", "processes": answers }));
    } else if answers.is_empty() {
        eprintln!("wmctl: no statistics: the program made no successful CUDA call, or statistics are off");
    } else {
        answers.iter().for_each(|answer| eprint!("\n{}", stats::text(answer)));
    }
}

/// The program's exit code, in the shell's notation for one that a signal ended.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
