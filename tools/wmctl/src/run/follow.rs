//! `wmctl run --stats`: a program's statistics after it has ended.
//!
//! A program takes its statistics with it, so it is told to leave them: every process of its tree
//! writes its last words into a private folder when it exits (`WMSHIM_STATS_AT_EXIT`), however
//! short it was. A process that is killed writes nothing: for it the last reading counts, which is
//! refreshed while it runs.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::{client, human, stats};

use super::signals;

/// The variable that makes a program leave its last words.
const AT_EXIT: &str = "WMSHIM_STATS_AT_EXIT";
/// How often readings are taken, for processes that are killed.
const LOOK: Duration = Duration::from_millis(500);
/// Longest file that is read: the endpoint's own limit.
const LONGEST: u64 = 8 << 20;

/// The last reading of each process.
type Readings = BTreeMap<u32, Value>;

/// Runs the program, prints its statistics, and returns its exit code.
///
/// # Errors
/// A program that cannot be started.
pub(super) fn follow(mut command: Command, is_named: bool, as_json: bool) -> Result<ExitCode> {
    // If the user named a file, the output goes to that file.
    let words = if is_named { None } else { LastWords::new() };
    if let Some(words) = &words {
        command.env(AT_EXIT, words.0.join("%p.json"));
    }
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
    let (readings, status) = watch(pid, &ended)?;
    print(&answers(readings, words.as_ref()), as_json);
    Ok(exit_code(status))
}

/// Was the file for the last words named by the user?
pub(super) fn names_file(variable: &dyn Fn(&str) -> Option<std::ffi::OsString>) -> bool {
    variable(AT_EXIT).is_some_and(|value| !value.is_empty())
}

/// Reads every process of the tree now and then, until its root has ended.
fn watch(root: u32, ended: &Receiver<std::io::Result<ExitStatus>>) -> Result<(Readings, ExitStatus)> {
    let mut readings = Readings::new();
    loop {
        match ended.recv_timeout(LOOK) {
            Ok(status) => return Ok((readings, status?)),
            Err(RecvTimeoutError::Timeout) => read(root, &mut readings),
            Err(RecvTimeoutError::Disconnected) => anyhow::bail!("lost sight of the program"),
        }
    }
}

fn read(root: u32, readings: &mut Readings) {
    let tree = tree(root);
    let endpoints: Vec<_> = tree.into_iter().filter_map(client::endpoint_of).collect();
    let answers = client::ask_all(&endpoints, "stats");
    let heard =
        endpoints.iter().zip(answers).filter_map(|(endpoint, answer)| Some((endpoint.pid, answer.ok()?)));
    readings.extend(heard);
}

/// Each process's statistics at its exit; of one that still lives or was killed, the last known
/// ones.
fn answers(mut readings: Readings, words: Option<&LastWords>) -> Vec<Value> {
    let said = words.map(LastWords::answers).unwrap_or_default();
    for answer in &said {
        let pid = answer.get("pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok());
        pid.map(|pid| readings.remove(&pid));
    }
    let living = |(pid, last)| {
        let now = client::endpoint_of(pid).and_then(|endpoint| client::ask(&endpoint, "stats").ok());
        now.unwrap_or(last)
    };
    said.into_iter().chain(readings.into_iter().map(living)).collect()
}

/// A private folder for the files of one run; it goes with its files.
struct LastWords(PathBuf);

impl LastWords {
    /// Makes the folder. Without one, readings have to do.
    fn new() -> Option<Self> {
        let make = |attempt: u32| {
            let path = std::env::temp_dir().join(format!("wmctl-{}-{attempt}", std::process::id()));
            DirBuilder::new().mode(0o700).create(&path).map(|()| path)
        };
        let made = (0..100).map(make).find(|made| !is_taken(made))?;
        made.inspect_err(|error| {
            eprintln!("wmctl: no folder for last words: {error}; set TMPDIR to one of yours")
        })
        .ok()
        .map(Self)
    }

    /// The statistics in the files, in the order of process numbers.
    fn answers(&self) -> Vec<Value> {
        let mut files: Vec<_> = files(&self.0);
        files.sort();
        files.iter().filter_map(|path| load(path)).collect()
    }
}

fn is_taken(made: &std::io::Result<PathBuf>) -> bool {
    made.as_ref().is_err_and(|error| error.kind() == ErrorKind::AlreadyExists)
}

impl Drop for LastWords {
    /// Removes the files that programs of this run wrote, and the folder once it is empty.
    fn drop(&mut self) {
        for path in files(&self.0) {
            let _ = fs::remove_file(path);
        }
        let _ = fs::remove_dir(&self.0);
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "json")).collect()
}

fn load(path: &Path) -> Option<Value> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(LONGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The process `root` and its descendants.
fn tree(root: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: BTreeMap<u32, u32> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let descends = |pid: &u32| {
        let mut ancestors = std::iter::successors(Some(*pid), |pid| parents.get(pid).copied());
        ancestors.any(|ancestor| ancestor == root)
    };
    parents.keys().copied().filter(descends).collect()
}

/// The parent's process id: the second field after the command's name, which is in parentheses and
/// may hold anything.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn print(answers: &[Value], as_json: bool) {
    if as_json {
        let report = json!({ "schema": "wmctl-run-stats/1", "processes": answers });
        eprintln!("{}", crate::output::escaped(&report.to_string()));
    } else if answers.is_empty() {
        eprintln!(
            "wmctl: no statistics: no process made a successful CUDA call, or their statistics are off \
             (WMSHIM_STATS_SOCKET=off, WMSHIM_DISABLE), or a short one was killed"
        );
    } else {
        for answer in answers {
            match stats::text(answer) {
                Ok(text) => eprint!("\n{text}"),
                Err(error) => eprintln!("wmctl: {}", human::shown(&format!("{error:#}"))),
            }
        }
    }
}

/// The program's exit code, in the shell's notation for one that a signal ended.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
