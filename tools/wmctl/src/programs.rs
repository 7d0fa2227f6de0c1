//! The programs that run now: by their black boxes, and by their sockets where they have none.
//!
//! A program is asked only if it has no black box (one of an earlier version, or one whose folder
//! has no room), and one that shares memory for its figures of that. One that is stopped is not
//! asked, since it cannot answer.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use serde_json::Value;
use wm_schema::{BytesByTier, Stats};

use crate::client::FolderFile;
use crate::client::boxes::{self, ReadBox};
use crate::client::{self, Endpoint, exchange, processes};

/// Between two looks at all processes of the machine, for a table that is renewed.
const LOOK: Duration = Duration::from_secs(5);

/// A program under the shim that runs.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) pid: u32,
    /// A signal or a debugger has stopped it.
    pub(crate) is_stopped: bool,
    source: FigureSource,
}

#[derive(Debug)]
enum FigureSource {
    BlackBox(Box<ReadBox>),
    Socket(Box<Endpoint>),
}

/// Where figures come from, as people name it.
#[derive(Debug)]
pub(crate) enum FigurePlace {
    BlackBox(PathBuf),
    Socket(PathBuf),
}

/// All programs that were found, and what was left by others.
#[derive(Debug, Default)]
pub(crate) struct FoundPrograms {
    /// In the order of their numbers.
    pub(crate) running: Vec<Program>,
    /// The boxes of those that have ended without an exit.
    pub(crate) dead: Vec<ReadBox>,
    /// Sockets without a listener.
    pub(crate) stale: Vec<Endpoint>,
    pub(crate) problems: Vec<String>,
    /// Processes that may be programs, and could not be looked into.
    pub(crate) closed: usize,
}

/// Looks for programs, again and again. Other processes' folders are looked for less often than
/// their files are read.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    others: Vec<(u32, FolderFile)>,
    sockets: Vec<Endpoint>,
    closed: usize,
    looked: Option<Instant>,
}

impl Program {
    /// Where its figures come from.
    pub(crate) fn place(&self) -> FigurePlace {
        match &self.source {
            FigureSource::BlackBox(read) => FigurePlace::BlackBox(read.path.clone()),
            FigureSource::Socket(endpoint) => FigurePlace::Socket(endpoint.socket.clone()),
        }
    }

    /// The figures of its black box, if it has one.
    pub(crate) fn black_box(&self) -> Option<Stats> {
        match &self.source {
            FigureSource::BlackBox(read) => Some(read.stats(true)),
            FigureSource::Socket(_) => None,
        }
    }

    /// What tells it from another process that gets its number later.
    pub(crate) fn incarnation(&self) -> (u32, u64) {
        match &self.source {
            FigureSource::BlackBox(read) => (self.pid, read.reading.process.made_ns),
            FigureSource::Socket(_) => (self.pid, 0),
        }
    }

    /// The live bytes of the last minute's seconds, of its black box.
    pub(crate) fn past(&self) -> Vec<(u64, BytesByTier)> {
        match &self.source {
            FigureSource::BlackBox(read) => read.past(),
            FigureSource::Socket(_) => Vec::new(),
        }
    }
    /// Its socket; `None` of one that is stopped.
    pub(crate) fn endpoint(&self) -> Option<Endpoint> {
        match &self.source {
            _ if self.is_stopped => None,
            FigureSource::Socket(endpoint) => Some(endpoint.as_ref().clone()),
            FigureSource::BlackBox(_) => client::endpoint_of(self.pid),
        }
    }

    /// Where it is asked for figures that no black box has; `None`: it is not.
    fn to_ask(&self) -> Option<Endpoint> {
        let is_asked = match &self.source {
            FigureSource::Socket(_) => true,
            FigureSource::BlackBox(read) => read.reading.stats.dedup.is_some(),
        };
        is_asked.then(|| self.endpoint()).flatten()
    }

    fn told(&self, answer: Option<Result<Value>>) -> Result<ToldFigures> {
        match &self.source {
            FigureSource::BlackBox(read) => {
                let mut stats = read.stats(true);
                let told: Option<Stats> = answer.and_then(|answer| client::parsed(&answer.ok()?).ok());
                if let Some(told) = told {
                    stats.dedup = told.dedup;
                }
                Ok(ToldFigures { stats, answer: None })
            }
            FigureSource::Socket(_) => {
                let answer = answer.unwrap_or_else(|| Err(stopped(self.pid)))?;
                Ok(ToldFigures { stats: client::parsed(&answer)?, answer: Some(answer) })
            }
        }
    }
}

/// What is known of a program.
#[derive(Debug)]
pub(crate) struct ToldFigures {
    pub(crate) stats: Stats,
    /// The answer as it came, of a program that was asked.
    pub(crate) answer: Option<Value>,
}

/// The figures of each program. Those that are to be asked are asked all at once.
pub(crate) fn figures(programs: &[Program], patience: Duration) -> Vec<Result<ToldFigures>> {
    let answers = ask(programs, Program::to_ask, patience);
    programs.iter().zip(answers).map(|(program, answer)| program.told(answer)).collect()
}

/// The answers of programs that are asked all at once; `None` for those that have no place to ask.
pub(crate) fn ask(
    programs: &[Program],
    place: impl Fn(&Program) -> Option<Endpoint>,
    patience: Duration,
) -> Vec<Option<Result<Value>>> {
    let endpoints: Vec<Option<Endpoint>> = programs.iter().map(place).collect();
    let asked: Vec<Endpoint> = endpoints.iter().flatten().cloned().collect();
    let mut answers = client::ask_all(&asked, "stats", patience).into_iter();
    endpoints.into_iter().map(|endpoint| endpoint.and_then(|_| answers.next())).collect()
}

fn stopped(pid: u32) -> anyhow::Error {
    anyhow!(
        "process {pid} is stopped; `kill -CONT {pid}`, or let its debugger go on. It has no black box, which would \
         have its figures"
    )
}

impl Finder {
    /// Looks everywhere, or only into the folder that was named.
    pub(crate) fn find(&mut self) -> FoundPrograms {
        let named = client::is_named();
        let user = Some(client::own_user()).filter(|user| *user != 0 || !named);
        let folders = boxes::places(client::directories(), client::own_user(), named);
        let own = boxes::in_folders(&folders, user);
        if !named {
            self.look(&folders);
        }
        let others = self.others.iter().filter_map(|(pid, file)| boxes::read_living(*pid, file));
        let alive = boxes::latest(own.alive.into_iter().chain(others));
        let mut found = FoundPrograms { dead: own.dead, problems: own.problems, ..FoundPrograms::default() };
        let has_box = |pid: u32| alive.binary_search_by_key(&pid, |read| read.pid).is_ok();
        for endpoint in self.endpoints(&mut found.problems) {
            if has_box(endpoint.pid) || found.running.iter().any(|known| known.pid == endpoint.pid) {
                continue;
            }
            match exchange::knock(&endpoint.door()) {
                exchange::Knock::Alive => found.running.push(Program {
                    pid: endpoint.pid,
                    is_stopped: processes::is_stopped(endpoint.pid),
                    source: FigureSource::Socket(Box::new(endpoint)),
                }),
                exchange::Knock::Refused => found.stale.push(endpoint),
                exchange::Knock::Unreachable => {}
            }
        }
        found.running.extend(alive.into_iter().map(|read| Program {
            pid: read.pid,
            is_stopped: read.is_stopped,
            source: FigureSource::BlackBox(Box::new(read)),
        }));
        found.running.sort_by_key(|program| program.pid);
        found.closed = self.closed;
        found.problems.sort();
        found.problems.dedup();
        found
    }

    /// Looks for processes whose folders are others than those of this shell.
    fn look(&mut self, own: &[PathBuf]) {
        if self.looked.is_some_and(|looked| looked.elapsed() < LOOK) {
            return;
        }
        self.looked = Some(Instant::now());
        (self.others, self.sockets) = (Vec::new(), Vec::new());
        self.closed = processes::closed();
        let shell = client::directories();
        for process in processes::all() {
            let mut places = client::box_places(&process);
            places.retain(|place| process.root.is_some() || !own.contains(place));
            self.others.extend(boxes::of_process(&process, &places));
            self.sockets.extend(client::of_other_process(&process, &shell));
        }
    }

    fn endpoints(&self, problems: &mut Vec<String>) -> Vec<Endpoint> {
        let own = client::of_own_places(problems);
        self.sockets.iter().cloned().chain(own).collect()
    }
}
