//! `wmctl run --stats`: the statistics of a program's processes after it has ended.
//!
//! Every process of its tree that exits writes its last words into a private folder
//! (`WMSHIM_STATS_AT_EXIT`). One that is killed, or leaves without an exit, says nothing: for it
//! its black box counts, which has the mark of this run (`WMSHIM_STATS_RUN`). The boxes of a run
//! are read when its first process has ended, and go with it.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::Result;
use serde_json::{Value, json};
use wm_schema::Stats;

use crate::{client, human, stats};

use super::signals;

/// The variable that makes a program leave its last words.
const AT_EXIT: &str = "WMSHIM_STATS_AT_EXIT";
/// The variable that marks the black boxes of a run.
const RUN: &str = "WMSHIM_STATS_RUN";
/// Longest file that is read: the endpoint's own limit.
const LONGEST: u64 = 8 << 20;

/// Runs the program, prints its statistics, and returns its exit code. `variable`: a variable as
/// the program sees it.
///
/// # Errors
/// A program that cannot be started.
pub(super) fn follow(
    mut command: Command,
    variable: &dyn Fn(&str) -> Option<OsString>,
    as_json: bool,
) -> Result<ExitCode> {
    // If the user named a file, the last words go there.
    let is_named = variable(AT_EXIT).is_some_and(|value| !value.is_empty());
    let words = if is_named { None } else { LastWords::new() };
    if let Some(words) = &words {
        command.env(AT_EXIT, words.0.join("%p.json"));
    }
    let run = mark()?;
    command.env(RUN, format!("{:016x}{:016x}", run[0], run[1]));
    signals::prepare();
    let mut child = command.spawn()?;
    signals::leave_to(child.id());
    let status = child.wait();
    signals::forget();
    let said = words.as_ref().map(LastWords::answers).unwrap_or_default();
    print(&with_boxes(said, boxes(run, variable)), as_json);
    Ok(exit_code(status?))
}

/// A mark that no other run has.
fn mark() -> Result<[u64; 2]> {
    let mut random = [[0; 8]; 2];
    for half in &mut random {
        rustix::rand::getrandom(&mut half[..], rustix::rand::GetRandomFlags::empty())?;
    }
    Ok(random.map(u64::from_ne_bytes))
}

/// The figures in the boxes of a run. Boxes of dead processes are removed: no other command is to
/// tell of them.
fn boxes(run: [u64; 2], variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<Stats> {
    let found = client::boxes_of(variable);
    let [alive, dead] = [found.alive, found.dead]
        .map(|boxes| boxes.into_iter().filter(|read| read.is_of_run(run)).collect::<Vec<_>>());
    for read in &dead {
        // Where it cannot be removed, `wmctl clean` says so.
        let _ = read.remove();
    }
    let mut stats: Vec<_> = dead.iter().map(|read| read.stats(false)).collect();
    stats.extend(alive.iter().map(|read| read.stats(true)));
    stats.sort_by_key(|stats| stats.pid);
    stats
}

/// The last words, and the figures of processes that left none.
fn with_boxes(mut answers: Vec<Value>, boxes: Vec<Stats>) -> Vec<Value> {
    let has_said = |stats: &Stats| {
        answers.iter().any(|answer| answer.get("pid").and_then(Value::as_u64) == Some(stats.pid.into()))
    };
    let silent: Vec<_> = boxes.into_iter().filter(|stats| !has_said(stats)).collect();
    answers.extend(silent.iter().filter_map(|stats| serde_json::to_value(stats).ok()));
    answers
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

fn print(answers: &[Value], as_json: bool) {
    if as_json {
        let report = json!({ "schema": "wmctl-run-stats/1", "processes": answers });
        eprintln!("{}", crate::output::escaped(&report.to_string()));
    } else if answers.is_empty() {
        eprintln!(
            "wmctl: no statistics: no process made a successful CUDA call, or their statistics are off \
             (WMSHIM_STATS_SOCKET=off, WMSHIM_DISABLE), or one was killed whose folder has no room for a black box"
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
