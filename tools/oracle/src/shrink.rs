//! Shrinks a program that fails: steps are removed while the rest is legal and fails in the same
//! way.

use std::ops::Range;
use std::time::Duration;

use crate::bench::{Bench, Limits};
use crate::judge::{Bar, Judge, Sides, Verdict};
use crate::model::Model;
use crate::program::{Program, Step};

/// The limit of a step during shrinking: each run of a program that hangs takes that long.
const SHORT: Duration = Duration::from_millis(1500);

impl Judge {
    /// Does the last of some programs fail in this way, after the others?
    pub(crate) fn fails(&self, case: &[Program], verdict: &Verdict) -> bool {
        self.last_of(case).is_like(verdict)
    }

    /// Removes steps while the last program still fails in the same way after the others, until the
    /// deadline.
    pub(crate) fn shrink(&self, case: &[Program], verdict: &Verdict) -> Vec<Program> {
        let judge = self.quick(verdict);
        let mut tries = Tries { judge: &judge, verdict, bar: Bar::new(&judge) };
        let (mut small, mut piece) = (case.to_vec(), steps(case).div_ceil(2));
        loop {
            let before = steps(&small);
            small = tries.without_pieces(small, piece);
            if piece > 1 {
                piece = piece.div_ceil(2);
            } else if steps(&small) == before || self.end.is_over() {
                return small;
            }
        }
    }

    /// The judge for programs that are shrunk.
    fn quick(&self, verdict: &Verdict) -> Self {
        // A real driver may hang with a smaller program; otherwise the library's run is enough.
        let beside = verdict.is_hang() && self.bench.simulated.is_none();
        let sides = match verdict {
            Verdict::Bare(_) => Sides::Bare,
            _ if self.sides == Sides::Both && !beside => Sides::Library,
            _ => self.sides,
        };
        let Limits { bare, library } = self.bench.limits;
        let limits = Limits { bare: bare.min(SHORT), library: library.min(SHORT) };
        Self { sides, bench: Bench { limits, ..self.bench.clone() }, ..self.clone() }
    }
}

/// Attempts to remove steps.
struct Tries<'a> {
    judge: &'a Judge,
    verdict: &'a Verdict,
    /// Processes in which no program has failed so far.
    bar: Bar<'a>,
}

impl Tries<'_> {
    /// Removes each piece of this many steps that is not needed, from the end on.
    fn without_pieces(&mut self, mut case: Vec<Program>, piece: usize) -> Vec<Program> {
        let mut end = steps(&case);
        while end > 0 && !self.judge.end.is_over() {
            let start = end.saturating_sub(piece);
            let smaller = without(&case, start..end);
            if steps(&smaller) < steps(&case) && self.fails(&smaller) {
                case = smaller;
            }
            end = start.min(steps(&case));
        }
        case
    }

    /// Programs that do not fail leave their process usable: a real driver's takes seconds to
    /// start.
    fn fails(&mut self, case: &[Program]) -> bool {
        let [alone] = case else { return self.judge.fails(case, self.verdict) };
        let found = self.bar.judge(alone);
        if !matches!(found, Verdict::Right { .. }) {
            self.bar = Bar::new(self.judge);
        }
        found.is_like(self.verdict)
    }
}

fn steps(case: &[Program]) -> usize {
    case.iter().map(|program| program.steps.len()).sum()
}

/// Programs without some of their steps, counted through all of them, and without those that are
/// then illegal.
fn without(case: &[Program], left_out: Range<usize>) -> Vec<Program> {
    let (mut rest, mut first) = (Vec::new(), 0);
    for program in case {
        let stays = |number: usize| !left_out.contains(&(first + number));
        rest.push(legal(program, stays));
        first += program.steps.len();
    }
    // The last program is the one that fails, possibly only at its end.
    let last = rest.len() - 1;
    let mut number = 0..;
    rest.retain(|program| !program.steps.is_empty() || number.next() == Some(last));
    rest
}

/// A program's remaining steps, as far as they are legal.
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
