//! Compares the runs of programs bare and under the library.
//!
//! Invariant: the library never runs a program that hangs or fails on the driver alone: its outcome
//! would prove nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::anyhow;

use crate::bench::{Bench, Limits, Side};
use crate::end::End;
use crate::moves::{self, Times};
use crate::outcome::{self, Fault, Run, Stay, Took};
use crate::process::Process;
use crate::program::{Program, Rules, Shape};

/// The parameters of a comparison.
#[derive(Debug, Clone)]
pub(crate) struct Judge {
    pub(crate) bench: Bench,
    pub(crate) scarce: bool,
    /// The runs to make.
    pub(crate) sides: Sides,
    /// The deadline of all runs.
    pub(crate) end: End,
}

/// The runs that are made and judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sides {
    /// The driver alone, which must be right.
    Bare,
    /// The library alone: programs are trusted to be right on the driver.
    Library,
    /// Both, and the library must match the driver.
    Both,
}

/// The result for a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Right, with the number of checked bytes, the number of refused calls, and the steps whose
    /// copies went through other devices.
    Right {
        checked: u64,
        refused: u64,
        relayed: Vec<usize>,
        /// Bytes that moved between the device and the host.
        moved: u64,
        /// How often the program has asked for its turn.
        asks: u64,
    },
    /// The driver alone hangs too, because of its own waits between streams: it may, if memory is
    /// scarce and on a real device.
    Open(Stay),
    /// The driver alone fails: the program, the rules or the driver is wrong.
    Bare(Fault),
    Library(Fault),
    /// The time was over first.
    Cut,
}

impl Verdict {
    /// The kind of fault, and its side.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Right { .. } => "right".to_owned(),
            Self::Open(_) => "open".to_owned(),
            Self::Cut => "cut short".to_owned(),
            Self::Bare(fault) => format!("{} bare", fault.kind()),
            Self::Library(fault) => format!("{} under the library", fault.kind()),
        }
    }

    /// On which side is the fault?
    pub(crate) fn side(&self) -> Option<Side> {
        match self {
            Self::Bare(_) => Some(Side::Bare),
            Self::Library(_) => Some(Side::Library),
            _ => None,
        }
    }

    pub(crate) fn is_hang(&self) -> bool {
        matches!(self, Self::Bare(Fault::Hang(_)) | Self::Library(Fault::Hang(_)))
    }

    /// Does it depend on the time that calls took? The machine's other processes delay them, too.
    pub(crate) fn is_slow(&self) -> bool {
        self.is_hang() || matches!(self, Self::Library(Fault::Late(_)))
    }

    /// Do two verdicts find the same kind of fault on the same side?
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bare(one), Self::Bare(other)) | (Self::Library(one), Self::Library(other)) => {
                one.kind() == other.kind()
            }
            _ => false,
        }
    }
}

/// A process of a side, and the programs that it has run.
#[derive(Debug, Default)]
struct Seat {
    process: Option<Process>,
    ran: Vec<Program>,
}

/// The processes that one worker's programs run in, one after another.
#[derive(Debug)]
pub(crate) struct Bar<'a> {
    judge: &'a Judge,
    bare: Seat,
    library: Seat,
    spent: Spent,
}

/// The time spent in all runs, on processes and inside them.
pub(crate) type Spent = BTreeMap<&'static str, Duration>;

impl<'a> Bar<'a> {
    pub(crate) fn new(judge: &'a Judge) -> Self {
        Self { judge, bare: Seat::default(), library: Seat::default(), spent: Spent::new() }
    }

    /// Runs a program and judges it.
    pub(crate) fn judge(&mut self, program: &Program) -> Verdict {
        let bare = (self.judge.sides != Sides::Library).then(|| self.run(Side::Bare, program));
        if let Some(verdict) = bare.as_ref().and_then(|run| self.judge.bare_verdict(run)) {
            return verdict;
        }
        let library = (self.judge.sides != Sides::Bare).then(|| self.run(Side::Library, program));
        let verdict = self.judge.verdict(bare.as_ref(), library.as_ref());
        match (&verdict, bare, library) {
            (Verdict::Right { .. }, Some(Run::Over(bare)), Some(Run::Over(library)))
                if self.judge.bench.timed =>
            {
                self.in_time(program, &bare.times, &library.times).unwrap_or(verdict)
            }
            _ => verdict,
        }
    }

    /// The verdict on a program with a call that takes too long: it runs again, in processes of its
    /// own, and the shortest time of each call counts. `None`: each is in time.
    fn in_time(&self, program: &Program, bare: &Times, library: &Times) -> Option<Verdict> {
        let (mut bare, mut library) = (bare.clone(), library.clone());
        let mut late = moves::late(program, &bare, &library)?;
        for _ in 1..moves::RUNS {
            let mut again = Bar::new(self.judge);
            let runs = [Side::Bare, Side::Library].map(|side| again.run(side, program));
            let [Run::Over(one), Run::Over(other)] = &runs else {
                return Some(self.judge.verdict(Some(&runs[0]), Some(&runs[1])));
            };
            (bare, library) = (moves::shorter(&bare, &one.times), moves::shorter(&library, &other.times));
            late = moves::late(program, &bare, &library)?;
        }
        Some(Verdict::Library(Fault::Late(late)))
    }

    fn run(&mut self, side: Side, program: &Program) -> Run {
        let seat = match side {
            Side::Bare => &mut self.bare,
            Side::Library => &mut self.library,
        };
        let begin = Instant::now();
        // The last program that a process ran is the one that ended it.
        let process = match seat.process.take() {
            Some(process) => Ok(process),
            None => {
                seat.ran.clear();
                Process::start(&self.judge.bench, side, program)
            }
        };
        let mut process = match process {
            Ok(process) => process,
            Err(error) => return Run::Died(format!("cannot start: {error}")),
        };
        let run = process.run(program, self.judge.end);
        let took = if let Run::Over(outcome) = &run { outcome.took } else { Took::default() };
        let parts = [("contexts and streams", took.prepare), ("steps", took.steps), ("the end", took.finish)];
        let inside: Duration = parts.iter().map(|(_, time)| *time).sum();
        for (part, time) in parts.into_iter().chain([("all else", begin.elapsed().saturating_sub(inside))]) {
            *self.spent.entry(part).or_default() += time;
        }
        seat.ran.push(program.clone());
        seat.process = (!run.ends_the_process()).then_some(process);
        run
    }

    /// The time spent since the last call.
    pub(crate) fn spent(&mut self) -> Spent {
        std::mem::take(&mut self.spent)
    }

    /// The programs that ran in a side's process so far, the latest one last.
    pub(crate) fn ran(&self, side: Side) -> &[Program] {
        match side {
            Side::Bare => &self.bare.ran,
            Side::Library => &self.library.ran,
        }
    }
}

impl Judge {
    /// Judges the last of some programs after the others, in processes of their own.
    pub(crate) fn last_of(&self, case: &[Program]) -> Verdict {
        let mut bar = Bar::new(self);
        case.iter().map(|program| bar.judge(program)).last().unwrap_or(Verdict::Cut)
    }

    /// Runs an empty program under the library.
    ///
    /// # Errors
    /// How its process ended: no program caused that.
    pub(crate) fn try_library(&self) -> anyhow::Result<()> {
        let rules = Rules { allocation_is_action: true, free_is_action: true, short: false, lawless: false };
        let shape = Shape { threads: 1, streams: vec![], keep: true, internal: true, rules, hosts: vec![] };
        let nothing = Program { seed: 0, shape, steps: Vec::new() };
        match Process::start(&self.bench, Side::Library, &nothing)?.run(&nothing, self.end) {
            Run::Died(how) => Err(anyhow!(how)),
            Run::Over(_) | Run::Cut => Ok(()),
        }
    }

    /// The same with more time for each step: on a loaded machine a step may take long without a
    /// hang.
    pub(crate) fn patient(&self) -> Self {
        let Limits { bare, library } = self.bench.limits;
        let limits = Limits { bare: bare * 3, library: library * 3 };
        Self { bench: Bench { limits, ..self.bench.clone() }, ..self.clone() }
    }

    /// The verdict if the run on the driver alone decides it.
    fn bare_verdict(&self, bare: &Run) -> Option<Verdict> {
        // A real driver may make streams wait for each other.
        let may_stay = self.scarce || self.bench.simulated.is_none();
        if matches!(bare, Run::Cut) {
            return Some(Verdict::Cut);
        }
        match (outcome::own_fault(bare, self.scarce)?, bare) {
            (Fault::Hang(_), Run::Over(outcome)) if may_stay => outcome.hang.clone().map(Verdict::Open),
            // A real driver's answers are right by definition.
            (Fault::Answer(_), _) if self.bench.simulated.is_none() => None,
            (fault, _) => Some(Verdict::Bare(fault)),
        }
    }

    fn verdict(&self, bare: Option<&Run>, library: Option<&Run>) -> Verdict {
        let fault = match (bare, library) {
            (Some(bare), Some(library)) => outcome::beside(bare, library, self.scarce),
            (None, Some(library)) => outcome::own_fault(library, self.scarce),
            _ => None,
        };
        fault.map_or_else(|| library.or(bare).map_or(Verdict::Cut, right), Verdict::Library)
    }
}

/// The verdict on a run without a fault.
fn right(run: &Run) -> Verdict {
    match run {
        Run::Over(outcome) => {
            let (refused, relayed) = (outcome.refused.len() as u64, outcome.relayed.clone());
            let (checked, moved, asks) = (outcome.checked, outcome.moved, outcome.asks);
            Verdict::Right { checked, refused, relayed, moved, asks }
        }
        Run::Died(_) | Run::Cut => Verdict::Cut,
    }
}
