//! Compares the runs of a program bare and under the library, and cuts a program down that fails.

use std::ops::Range;
use std::time::Duration;

use crate::bench::{Bench, Side};
use crate::model::Model;
use crate::outcome::{self, Fault, Run};
use crate::program::{Program, Step};

/// What a comparison needs.
#[derive(Debug, Clone)]
pub(crate) struct Judge {
    pub(crate) bench: Bench,
    pub(crate) scarce: bool,
    /// Which runs are made.
    pub(crate) sides: Sides,
}

/// Which runs are made and judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sides {
    /// The driver alone, which must be right.
    Bare,
    /// The library alone: programs are trusted to be right on the driver.
    Library,
    /// Both, and the library is held to what the driver does.
    Both,
}

/// How long a step may take while a program is cut down, where each run of one that hangs takes that long.
const SHORT: Duration = Duration::from_millis(1500);

/// What was found about a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Right, with so many bytes looked at and so many calls refused.
    Right {
        checked: u64,
        refused: u64,
    },
    /// The driver alone stays too, because of what it makes streams wait for: that is its right where memory is short.
    Open,
    /// The driver alone fails: the program, the rules or the driver is wrong.
    Bare(Fault),
    Library(Fault),
}

impl Verdict {
    /// The kind of fault, and whose it is.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Right { .. } | Self::Open => "right".to_owned(),
            Self::Bare(fault) => format!("{} bare", fault.kind()),
            Self::Library(fault) => format!("{} under the library", fault.kind()),
        }
    }

    /// Did the process end with it?
    pub(crate) fn ends_a_process(&self) -> bool {
        matches!(
            self,
            Self::Bare(Fault::Hang(_) | Fault::Died(_)) | Self::Library(Fault::Hang(_) | Fault::Died(_))
        )
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

impl Judge {
    /// A verdict a program.
    pub(crate) fn judge(&self, programs: &[Program]) -> Vec<Verdict> {
        let run = |side| self.bench.run(side, programs);
        let bare = (self.sides != Sides::Library).then(|| run(Side::Bare));
        let library = (self.sides != Sides::Bare).then(|| run(Side::Library));
        (0..programs.len())
            .map(|at| {
                self.verdict(bare.as_ref().map(|runs| &runs[at]), library.as_ref().map(|runs| &runs[at]))
            })
            .collect()
    }

    fn verdict(&self, bare: Option<&Run>, library: Option<&Run>) -> Verdict {
        // What a real driver makes streams wait for is its own affair.
        let may_stay = self.scarce || self.bench.simulated.is_none();
        match bare.and_then(|run| outcome::alone(run, self.scarce)) {
            Some(Fault::Hang(_)) if may_stay => return Verdict::Open,
            // Nor can it be wrong in its answers.
            Some(Fault::Answer(_)) if self.bench.simulated.is_none() => {}
            Some(fault) => return Verdict::Bare(fault),
            None => {}
        }
        let fault = match (bare, library) {
            (Some(bare), Some(library)) => outcome::beside(bare, library, self.scarce),
            (None, Some(library)) => outcome::alone(library, self.scarce),
            _ => None,
        };
        fault.map_or_else(|| library.or(bare).map_or(Verdict::Open, right), Verdict::Library)
    }

    /// What is left of programs, of which the last fails after the others, when it still fails in the same way: steps are left out for as
    /// long as the rest is legal and it fails.
    pub(crate) fn shrink(&self, case: &[Program], verdict: &Verdict) -> Vec<Program> {
        let sides = if matches!(verdict, Verdict::Bare(_)) { Sides::Bare } else { self.sides };
        let mut judge =
            Self { sides: if sides == Sides::Both { Sides::Library } else { sides }, ..self.clone() };
        judge.bench.limit = judge.bench.limit.min(SHORT);
        let (mut small, mut piece) = (case.to_vec(), steps(case).div_ceil(2));
        loop {
            let before = steps(&small);
            small = judge.without_pieces(small, piece, verdict);
            if piece > 1 {
                piece = piece.div_ceil(2);
            } else if steps(&small) == before {
                return small;
            }
        }
    }

    /// Leaves out each piece of so many steps that is not needed, from the end on.
    fn without_pieces(&self, mut case: Vec<Program>, piece: usize, verdict: &Verdict) -> Vec<Program> {
        let mut end = steps(&case);
        while end > 0 {
            let start = end.saturating_sub(piece);
            let smaller = without(&case, start..end);
            if steps(&smaller) < steps(&case) && self.fails(&smaller, verdict) {
                case = smaller;
            }
            end = start.min(steps(&case));
        }
        case
    }

    /// Does the last of some programs fail in a way, after the others?
    pub(crate) fn fails(&self, case: &[Program], verdict: &Verdict) -> bool {
        self.judge(case).last().is_some_and(|last| last.is_like(verdict))
    }
}

/// The verdict on a run without a fault.
fn right(run: &Run) -> Verdict {
    match run {
        Run::Over(outcome) => {
            Verdict::Right { checked: outcome.checked, refused: outcome.refused.len() as u64 }
        }
        Run::Died(_) => Verdict::Open,
    }
}

fn steps(case: &[Program]) -> usize {
    case.iter().map(|program| program.steps.len()).sum()
}

/// Programs without some of their steps, counted through all of them, and without those that are not legal then.
fn without(case: &[Program], left_out: Range<usize>) -> Vec<Program> {
    let (mut rest, mut first) = (Vec::new(), 0);
    for program in case {
        let stays = |number: usize| !left_out.contains(&(first + number));
        rest.push(legal(program, stays));
        first += program.steps.len();
    }
    // The last one is what fails, if only at its end.
    let last = rest.len() - 1;
    let mut number = 0..;
    rest.retain(|program| !program.steps.is_empty() || number.next() == Some(last));
    rest
}

/// A program's steps that stay, as far as they are legal.
fn legal(program: &Program, stays: impl Fn(usize) -> bool) -> Program {
    let mut model = Model::new(&program.shape);
    let mut keep = |step: &&Step| {
        let mut next = model.clone();
        let legal = next.apply(step).is_ok();
        if legal {
            model = next;
        }
        legal
    };
    let rest = program.steps.iter().enumerate().filter(|(number, _)| stays(*number));
    let steps = rest.map(|(_, step)| step).filter(|step| keep(step)).cloned().collect();
    Program { steps, ..program.clone() }
}
