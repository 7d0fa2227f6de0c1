//! `wmctl pause` and `wmctl resume`: the device memory of a running program goes to the host, and
//! comes back.
//!
//! The program answers at once and is asked again until it is there: a client that is interrupted
//! leaves it on its way. A name stands for all programs of that name, which are asked together, so
//! that ranks of one job do not wait for each other.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use wm_schema::{PauseAnswer, PauseStats};

use crate::client::{self, Endpoint};
use crate::deep::DeepDriver;
use crate::human::{self, bytes, word};
use crate::programs::{self, Finder};
use crate::{output, stats};

/// Between two questions how far the program has come.
const LOOK: Duration = Duration::from_millis(10);

/// Arguments of `wmctl pause`.
#[derive(Debug, clap::Args)]
pub(crate) struct PauseArguments {
    #[command(flatten)]
    program: NamedPrograms,
    /// Where its memory goes: pinned memory of the host (the default), memory that is not pinned
    /// (the default with --deep), or a folder for files that have no names
    #[arg(long, value_name = "host|memory|DIR")]
    to: Option<PausePlace>,
    /// Have the driver take the rest too, contexts and code (driver 570 or newer)
    #[arg(long)]
    deep: bool,
    /// Make host memory for its device memory now, while it runs, so that a later pause is fast
    #[arg(long, conflicts_with_all = ["to", "deadline", "deep"])]
    prepare: bool,
    /// How long calls and work that are under way may take to end [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = stats::interval)]
    deadline: Option<Duration>,
}

/// Arguments of `wmctl resume`.
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeArguments {
    #[command(flatten)]
    program: NamedPrograms,
}

#[derive(Debug, clap::Args)]
struct NamedPrograms {
    /// The process, or the file name of its program: all that run of that name
    #[arg(value_name = "PID|NAME")]
    program: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone)]
enum PausePlace {
    /// Pinned memory of the host.
    Host,
    /// Memory of the host that is not pinned.
    Memory,
    /// Files in a folder, by its absolute path.
    Folder(PathBuf),
}

impl FromStr for PausePlace {
    type Err = std::io::Error;

    /// A relative folder is one of the caller's, and the program has another one.
    fn from_str(text: &str) -> std::io::Result<Self> {
        match text {
            "host" => Ok(Self::Host),
            "memory" => Ok(Self::Memory),
            folder => std::path::absolute(folder).map(Self::Folder),
        }
    }
}

/// The wanted end of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestedState {
    Paused,
    Running,
    /// It runs, and host memory for a pause lies ready.
    Prepared,
}

/// What was said of a program on its way.
#[derive(Debug, Default)]
struct ShownProgress {
    /// The last line has no end yet.
    is_open: bool,
    problem: Option<String>,
}

impl ShownProgress {
    /// Bytes of files so far, for a person at a terminal, and what a resume waits for.
    fn show(&mut self, pid: u32, pause: &PauseStats) {
        if pause.whole_bytes > 0 && std::io::stderr().is_terminal() {
            eprint!("\rprocess {pid}: {} of {} ", bytes(pause.done_bytes), bytes(pause.whole_bytes));
            self.is_open = true;
        }
        if pause.state == "resuming" && pause.problem.is_some() && pause.problem != self.problem {
            self.end();
            self.problem.clone_from(&pause.problem);
            eprintln!("wmctl: process {pid}: {}", human::shown(self.problem.as_deref().unwrap_or_default()));
        }
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.is_open) {
            eprintln!();
        }
    }
}

/// One process, and what became of the request.
struct AskedProcess {
    pid: u32,
    was_there: bool,
    answer: Result<PauseAnswer>,
}

/// Pauses programs, and waits until they are paused.
///
/// # Errors
/// No such program. One that refuses is said, and the code is 1.
pub(crate) fn pause(arguments: &PauseArguments) -> Result<ExitCode> {
    if arguments.prepare {
        return arguments.program.ask(&json!({ "request": "pause_prepare" }), RequestedState::Prepared, None);
    }
    // Before anything is paused: it may be too old.
    let driver = arguments.deep.then(DeepDriver::open).transpose()?;
    let mut request = json!({ "request": "pause" });
    // The driver copies memory that it has pinned once more, and may fail to give that back.
    let usual = if arguments.deep { PausePlace::Memory } else { PausePlace::Host };
    match arguments.to.as_ref().unwrap_or(&usual) {
        PausePlace::Host => {}
        PausePlace::Memory => request["to"] = json!("memory"),
        PausePlace::Folder(folder) => {
            request["to"] = json!(folder.to_str().context("the folder's name is no text")?);
        }
    }
    if let Some(deadline) = arguments.deadline {
        request["deadline_s"] = json!(deadline.as_secs_f64());
    }
    arguments.program.ask(&request, RequestedState::Paused, driver.as_ref())
}

/// Resumes programs, and waits until they run.
///
/// # Errors
/// No such program. One that does not answer is said, and the code is 1.
pub(crate) fn resume(arguments: &ResumeArguments) -> Result<ExitCode> {
    arguments.program.ask(&json!({ "request": "resume" }), RequestedState::Running, None)
}

impl NamedPrograms {
    /// `driver`: takes what the library cannot move.
    fn ask(&self, request: &Value, goal: RequestedState, driver: Option<&DeepDriver>) -> Result<ExitCode> {
        let endpoints = self.endpoints()?;
        let asked: Vec<AskedProcess> = thread::scope(|scope| {
            let asks = |endpoint| scope.spawn(move || AskedProcess::ask(endpoint, request, goal, driver));
            let threads: Vec<_> = endpoints.iter().map(asks).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let has_failed = asked.iter().any(|one| one.problem(goal).is_some());
        if self.json {
            let processes: Vec<Value> = asked.iter().map(|one| one.document(goal)).collect();
            output::print_json(&json!({ "schema": "wmctl-pause/1", "processes": processes }))?;
        } else {
            for one in &asked {
                match one.problem(goal) {
                    Some(problem) => eprintln!("wmctl: process {}: {}", one.pid, human::shown(&problem)),
                    None => output::print(&one.text(goal))?,
                }
            }
        }
        Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn endpoints(&self) -> Result<Vec<Endpoint>> {
        if let Ok(pid) = self.program.parse() {
            return Ok(vec![client::of_process(pid)?]);
        }
        let found = Finder::default().find().running;
        let figures = programs::figures(&found, client::PATIENCE);
        let is_named = |program: &str| program == self.program;
        let named = found.iter().zip(figures).filter_map(|(program, figures)| {
            figures.is_ok_and(|told| is_named(&told.stats.program)).then(|| program.endpoint()).flatten()
        });
        let endpoints: Vec<Endpoint> = named.collect();
        if endpoints.is_empty() {
            bail!("no program of the name {} runs under the shim, or it has no socket", self.program);
        }
        Ok(endpoints)
    }
}

impl AskedProcess {
    fn ask(endpoint: &Endpoint, request: &Value, goal: RequestedState, driver: Option<&DeepDriver>) -> Self {
        let before = state(endpoint, &json!({ "request": "pause_state" }));
        let restored = if goal == RequestedState::Running { restored(endpoint, &before) } else { Ok(()) };
        let is_there = |pause: &PauseStats| goal.is_reached(pause) && (driver.is_none() || pause.is_deep);
        let was_there = before.is_ok_and(|before| is_there(&before.pause));
        let mut answer = restored.and_then(|()| state(endpoint, request));
        let problem = answer.as_ref().ok().and_then(|told| told.pause.problem.clone());
        let mut progress = ShownProgress::default();
        while let Ok(told) = &answer
            && goal.is_awaited(&told.pause)
        {
            progress.show(endpoint.pid, &told.pause);
            thread::sleep(LOOK);
            answer = state(endpoint, &json!({ "request": "pause_state" }));
        }
        progress.end();
        if let (Some(driver), Ok(told)) = (driver, &answer)
            && goal.is_reached(&told.pause)
            && !told.pause.is_deep
        {
            answer = driver.take(endpoint);
        }
        if let (RequestedState::Prepared, Ok(told)) = (goal, &mut answer) {
            // That of an earlier pause is none of this request.
            told.pause.problem = problem;
        }
        Self { pid: endpoint.pid, was_there, answer }
    }

    fn problem(&self, goal: RequestedState) -> Option<String> {
        match &self.answer {
            Err(error) => Some(format!("{error:#}")),
            Ok(answer) if goal.is_reached(&answer.pause) => None,
            Ok(PauseAnswer { pause, .. }) if goal == RequestedState::Prepared => {
                let full = || "the host has no room for all of it (WMSHIM_HOST_LIMIT)".to_owned();
                Some(pause.problem.clone().unwrap_or_else(full))
            }
            Ok(PauseAnswer { pause, .. }) => {
                let state = || format!("it is {} now: another client has asked for that", word(&pause.state));
                Some(pause.problem.clone().unwrap_or_else(state))
            }
        }
    }

    fn document(&self, goal: RequestedState) -> Value {
        let mut document = json!({ "pid": self.pid, "was_there": self.was_there });
        match (&self.answer, self.problem(goal)) {
            (Ok(answer), problem) => {
                document["pause"] = serde_json::to_value(&answer.pause).unwrap_or_default();
                document["error"] = json!(problem);
            }
            (Err(_), problem) => document["error"] = json!(problem),
        }
        document
    }

    fn text(&self, goal: RequestedState) -> String {
        let Ok(PauseAnswer { pause, .. }) = &self.answer else { return String::new() };
        match (goal, self.was_there) {
            (RequestedState::Paused, true) => {
                format!("process {} is {} already\n", self.pid, word(pause.word()))
            }
            (RequestedState::Running, true) => format!("process {} runs\n", self.pid),
            (RequestedState::Paused, false) => {
                format!("process {} is {}: {}", self.pid, word(pause.word()), stats::paused(pause))
            }
            (RequestedState::Prepared, _) => format!("process {}: {}", self.pid, stats::arena(&pause.arena)),
            (RequestedState::Running, false) => format!("process {} runs: {}", self.pid, resumed(pause)),
        }
    }
}

impl RequestedState {
    fn is_reached(self, pause: &PauseStats) -> bool {
        match self {
            Self::Paused => pause.state == "paused",
            Self::Running => pause.state == "running",
            Self::Prepared => {
                let is_refused = pause.state == "off" || pause.problem.is_some();
                !is_refused && !pause.arena.is_filling && !pause.arena.is_full
            }
        }
    }

    /// Is the program on its way there?
    fn is_awaited(self, pause: &PauseStats) -> bool {
        match self {
            Self::Paused | Self::Running => matches!(pause.state.as_str(), "pausing" | "resuming"),
            Self::Prepared => pause.arena.is_filling,
        }
    }
}

/// The driver gives a process back what it has taken. One that does not answer may wait for that.
fn restored(endpoint: &Endpoint, before: &Result<PauseAnswer>) -> Result<()> {
    let give_back = || DeepDriver::open()?.give_back(endpoint);
    match before {
        Ok(told) if !told.pause.is_deep => Ok(()),
        Ok(_) => give_back(),
        Err(_) => {
            // If it was something else, the answer to the request says so.
            let _given = give_back();
            Ok(())
        }
    }
}

fn state(endpoint: &Endpoint, request: &Value) -> Result<PauseAnswer> {
    let answer = client::ask_with(endpoint, request, client::PATIENCE);
    client::parsed(&answer.context("it was not asked to the end")?)
}

fn resumed(pause: &PauseStats) -> String {
    let mut text = format!("{} back in {}\n", bytes(pause.in_bytes), human::duration(pause.resume_s));
    if pause.left_bytes > 0 {
        text.push_str(&format!(
            "  {} found no room and lie on the host, where the GPU reads them\n",
            bytes(pause.left_bytes)
        ));
    }
    text
}
