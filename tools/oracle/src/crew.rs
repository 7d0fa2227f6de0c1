//! Workers that draw programs and judge them, side by side.
//!
//! One place hands out seeds, a stretch at a time. A seed's program depends neither on the worker
//! that draws it nor on earlier programs in its processes, which end with the stretch. Only the
//! order of the reports depends on the workers.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::end::End;
use crate::generate::{self, Wishes};
use crate::judge::{Bar, Judge, Verdict};
use crate::program::Program;
use crate::told::{Failed, Told};

/// The programs that one worker runs in the same processes.
#[derive(Debug, Clone)]
pub(crate) enum Stretch {
    Drawn(Range<u64>),
    Saved(Vec<Program>),
}

/// Hands out programs until it is told to stop.
#[derive(Debug)]
pub(crate) struct Supply {
    left: Mutex<Stretch>,
    /// Programs of a stretch.
    batch: u64,
    /// The number of failures after which the run ends.
    wanted: AtomicUsize,
    end: End,
}

impl Supply {
    pub(crate) fn new(all: Stretch, batch: u64, wanted: usize, end: End) -> Self {
        Self { left: Mutex::new(all), batch: batch.max(1), wanted: AtomicUsize::new(wanted), end }
    }

    /// Counts a failed program. The last wanted one ends the run.
    fn fail(&self) {
        // More may fail than are wanted, because programs run side by side.
        let less = |wanted: usize| Some(wanted.saturating_sub(1));
        let _before = self.wanted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    fn is_over(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) == 0 || self.end.is_over()
    }

    fn next(&self) -> Option<Stretch> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *left {
            _ if self.is_over() => None,
            Stretch::Drawn(seeds) => {
                let first = seeds.start;
                seeds.start = first.saturating_add(self.batch).min(seeds.end);
                (first < seeds.start).then_some(Stretch::Drawn(first..seeds.start))
            }
            // Saved programs form one case.
            Stretch::Saved(programs) => {
                (!programs.is_empty()).then(|| Stretch::Saved(std::mem::take(programs)))
            }
        }
    }
}

/// The treatment of a program that fails.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Care {
    pub(crate) shrink: bool,
    /// The time to shrink one.
    pub(crate) time: Duration,
}

/// Judges the programs that it is handed.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    pub(crate) judge: &'a Judge,
    pub(crate) supply: &'a Supply,
    pub(crate) wishes: Wishes,
    pub(crate) care: Care,
    pub(crate) told: Sender<Told>,
}

impl Worker<'_> {
    pub(crate) fn work(&self) {
        while let Some(stretch) = self.supply.next() {
            let mut bar = Bar::new(self.judge);
            match stretch {
                Stretch::Drawn(seeds) => seeds
                    .take_while(|_| !self.supply.is_over())
                    .for_each(|seed| self.judge(&mut bar, generate::program(seed, &self.wishes))),
                Stretch::Saved(programs) => {
                    let programs = programs.into_iter().take_while(|_| !self.supply.is_over());
                    programs.for_each(|program| self.judge(&mut bar, program));
                }
            }
        }
    }

    fn judge(&self, bar: &mut Bar<'_>, program: Program) {
        let verdict = bar.judge(&program);
        if let Some(side) = verdict.side() {
            self.tell(self.follow(bar.ran(side), &program, verdict.clone()));
        }
        self.tell(Told::Judged(program, verdict));
        self.tell(Told::Spent(bar.spent()));
    }

    fn tell(&self, told: Told) {
        // The receiver is gone only after the run has ended.
        let _heard = self.told.send(told);
    }

    /// Runs a program alone that failed after others. If it fails again it is shrunk alone, else
    /// together with the others.
    fn follow(&self, ran: &[Program], program: &Program, verdict: Verdict) -> Told {
        eprintln!("oracle: seed {} fails: {}", program.seed, verdict.name());
        let alone = std::slice::from_ref(program);
        let judge = if verdict.is_hang() { self.judge.patient() } else { self.judge.clone() };
        let repeats = [alone, ran].into_iter().find(|case| judge.fails(case, &verdict));
        let case = match repeats {
            Some(case) => case,
            None if verdict.is_slow() => return Told::Slow(program.seed),
            None => alone,
        };
        self.supply.fail();
        let (small, last) = self.cut_down(case, &verdict, repeats.is_some());
        let repeats = (repeats.is_some() || !self.judge.end.is_over()).then_some(repeats.is_some());
        Told::Failed(Failed { case: small, verdict: last.unwrap_or(verdict), repeats })
    }

    /// A smaller case, and its verdict.
    fn cut_down(
        &self,
        case: &[Program],
        verdict: &Verdict,
        repeats: bool,
    ) -> (Vec<Program>, Option<Verdict>) {
        if !repeats || !self.care.shrink {
            return (case.to_vec(), None);
        }
        let judge = Judge { end: self.judge.end.or_after(self.care.time), ..self.judge.clone() };
        let small = judge.shrink(case, verdict);
        let last = self.judge.last_of(&small);
        // A case that failed only in a process with others, or for which no time is left, stays
        // unchanged.
        if last.is_like(verdict) { (small, Some(last)) } else { (case.to_vec(), None) }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a seed is handed out twice, or never.
    use super::*;

    #[test]
    fn each_seed_is_handed_out_once() {
        let supply = Supply::new(Stretch::Drawn(7..20), 5, 1, End::default());
        let seeds = std::iter::from_fn(|| supply.next()).flat_map(|stretch| match stretch {
            Stretch::Drawn(seeds) => seeds.collect::<Vec<_>>(),
            Stretch::Saved(_) => Vec::new(),
        });
        assert!(seeds.eq(7..20));
    }

    #[test]
    fn nothing_is_handed_out_when_enough_has_failed_or_the_time_is_over() {
        let supply = |end| Supply::new(Stretch::Drawn(0..9), 5, 2, end);
        assert!(supply(End::after(Some(Duration::ZERO))).next().is_none());
        let supply = supply(End::default());
        supply.fail();
        assert!(supply.next().is_some());
        supply.fail();
        assert!(supply.next().is_none());
    }
}
