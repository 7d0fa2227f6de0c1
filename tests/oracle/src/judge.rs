//! Compares the runs of a program bare and under the library, and cuts a program down that fails.

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
const SHORT: Duration = Duration::from_secs(2);

/// What was found about a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Right, with so many bytes looked at.
    Right(u64),
    /// The driver alone fails: the program, the rules or the driver is wrong.
    Bare(Fault),
    Library(Fault),
}

impl Verdict {
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
        if let Some(fault) = bare.and_then(|run| outcome::alone(run, self.scarce)) {
            return Verdict::Bare(fault);
        }
        let fault = match (bare, library) {
            (Some(bare), Some(library)) => outcome::beside(bare, library, self.scarce),
            (None, Some(library)) => outcome::alone(library, self.scarce),
            _ => None,
        };
        let checked = |run: &Run| if let Run::Over(outcome) = run { outcome.checked } else { 0 };
        fault.map_or_else(|| Verdict::Right(library.or(bare).map_or(0, checked)), Verdict::Library)
    }

    /// A smaller program that fails in the same way: steps are left out for as long as that is legal and it fails.
    pub(crate) fn shrink(&self, program: &Program, verdict: &Verdict) -> Program {
        let sides = if matches!(verdict, Verdict::Bare(_)) { Sides::Bare } else { self.sides };
        let mut judge =
            Self { sides: if sides == Sides::Both { Sides::Library } else { sides }, ..self.clone() };
        judge.bench.limit = judge.bench.limit.min(SHORT);
        let (mut small, mut piece) = (program.clone(), program.steps.len().div_ceil(2));
        loop {
            let before = small.steps.len();
            small = judge.without_pieces(small, piece, verdict);
            if piece > 1 {
                piece = piece.div_ceil(2);
            } else if small.steps.len() == before {
                return small;
            }
        }
    }

    /// Leaves out each piece of so many steps that is not needed, from the end on.
    fn without_pieces(&self, mut program: Program, piece: usize, verdict: &Verdict) -> Program {
        let mut end = program.steps.len();
        while end > 0 {
            let start = end.saturating_sub(piece);
            let smaller = without(&program, start..end);
            if smaller.steps.len() < program.steps.len() && self.fails(&smaller, verdict) {
                program = smaller;
            }
            end = start.min(program.steps.len());
        }
        program
    }

    fn fails(&self, program: &Program, verdict: &Verdict) -> bool {
        self.judge(std::slice::from_ref(program))[0].is_like(verdict)
    }
}

/// A program without some steps, and without those that are not legal then.
fn without(program: &Program, left_out: std::ops::Range<usize>) -> Program {
    let mut model = Model::new(&program.shape);
    let mut keep = |step: &&Step| {
        let mut next = model.clone();
        let legal = next.apply(step).is_ok();
        if legal {
            model = next;
        }
        legal
    };
    let rest = program.steps.iter().enumerate().filter(|(number, _)| !left_out.contains(number));
    let steps = rest.map(|(_, step)| step).filter(|step| keep(step)).cloned().collect();
    Program { steps, ..program.clone() }
}
