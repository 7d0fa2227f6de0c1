//! Hazard (silent degradation): a program that submits much work ahead of the GPU never has an idle
//! one in a launch, so that nothing moves; or it waits although nothing is gained.
//!
//! The budget and the trial of waits, with a model of the machine: launches return at once, the GPU
//! works them off, a kernel is slow if its memory is on the host, and the host waits once a period.

use std::time::{Duration, Instant};

use super::wait_budget::{EndedWait, WAIT, WaitBudget, WaitWorth};
use super::waits::{AHEAD, PACE};
use super::way_trial::{TrialClock, WayTrial};

const LAUNCH: Duration = Duration::from_micros(10);

/// A launch of each period.
#[derive(Debug, Clone, Copy)]
struct ModelKernel {
    /// Units of memory that it uses, and no other.
    size: usize,
    fast: Duration,
    slow: Duration,
    /// The time of a move of its memory, one way.
    moved: Duration,
}

struct Model<'a> {
    kernels: &'a [ModelKernel],
    placed: Vec<bool>,
    capacity: usize,
    budget: WaitBudget,
    trial: WayTrial,
    start: Instant,
    now: Instant,
    /// When the GPU has worked off what was launched.
    idle_at: Instant,
    waited: Duration,
    event: u64,
    host_waits: u64,
    idle_seen: Instant,
}

impl<'a> Model<'a> {
    fn new(kernels: &'a [ModelKernel], capacity: usize) -> Self {
        let start = Instant::now();
        let mut used = 0;
        let is_placed = |kernel: &ModelKernel| {
            used += kernel.size;
            used <= capacity
        };
        Self {
            placed: kernels.iter().map(is_placed).collect(),
            kernels,
            capacity,
            budget: WaitBudget::new(WAIT, 25),
            trial: WayTrial::default(),
            start,
            now: start,
            idle_at: start,
            waited: Duration::ZERO,
            event: 0,
            host_waits: 0,
            idle_seen: start,
        }
    }

    /// The memory of a kernel comes; that of the kernels with the furthest next launches leaves.
    fn come(&mut self, number: usize) {
        let count = self.kernels.len();
        let used = |placed: &[bool]| -> usize {
            (0..count).filter(|at| placed[*at]).map(|at| self.kernels[at].size).sum()
        };
        for distance in (1..count).rev() {
            if used(&self.placed) + self.kernels[number].size <= self.capacity {
                break;
            }
            let other = (number + distance) % count;
            if std::mem::take(&mut self.placed[other]) {
                self.now += self.kernels[other].moved;
            }
        }
        self.placed[number] = true;
        self.now += self.kernels[number].moved;
    }

    fn launch(&mut self, number: usize) {
        let (time, credit) = (self.now - self.start, self.budget.credit(self.now));
        let period = self.kernels.len() as u64;
        let clock = || TrialClock {
            event: self.event,
            time,
            host_waits: self.host_waits,
            credit,
            ..TrialClock::default()
        };
        self.trial.record(self.event, (self.event > 2 * period).then_some(period), clock);
        self.event += 1;
        let worth = self.budget.counts_as(self.now, self.trial.worth());
        let is_far = self.now - self.idle_seen > AHEAD;
        let paces = worth.is_measured() && (is_far || self.event.is_multiple_of(PACE));
        let is_wanted = !self.placed[number] || paces;
        if let Some(limit) = self.budget.limit(self.now, worth).filter(|_| is_wanted) {
            let took = self.idle_at.saturating_duration_since(self.now).min(limit);
            self.now += took;
            self.waited += took;
            let is_idle = self.idle_at <= self.now;
            if is_idle {
                self.idle_seen = self.now;
            }
            self.budget.end(&EndedWait { limit, took, end: self.now, has_moved: is_idle }, worth);
            if is_idle && !self.placed[number] {
                self.come(number);
                self.trial.count_wait();
            }
        }
        self.now += LAUNCH;
        let kernel = self.kernels[number];
        self.idle_at =
            self.idle_at.max(self.now) + if self.placed[number] { kernel.fast } else { kernel.slow };
    }

    /// The time of each period.
    fn run(&mut self, periods: usize) -> Vec<Duration> {
        let mut period = || {
            let begin = self.now;
            (0..self.kernels.len()).for_each(|number| self.launch(number));
            let own = self.idle_at.saturating_duration_since(self.now);
            self.now += own;
            self.host_waits += 1;
            self.budget.earn(own);
            self.now - begin
        };
        (0..periods).map(|_| period()).collect()
    }
}

fn kernels(count: usize, of: impl Fn(usize) -> ModelKernel) -> Vec<ModelKernel> {
    (0..count).map(of).collect()
}

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// As a graph network: some of the kernels read memory at random, a tenth as fast as the link.
#[test]
fn a_program_whose_kernels_are_slow_on_the_host_becomes_fast() {
    let kernels = kernels(100, |number| match number % 16 {
        7 => ModelKernel { size: 100, fast: ms(12), slow: ms(400), moved: ms(30) },
        _ => ModelKernel { size: 10, fast: ms(1), slow: ms(4), moved: ms(3) },
    });
    let mut model = Model::new(&kernels, 900);
    let periods = model.run(30);
    let (first, last) = (periods[0], periods[29]);
    assert!(first > ms(1400) && last < ms(700), "{periods:?}");
    assert!(model.trial.worth() == WaitWorth::Pays);
}

/// As a decoder: each kernel reads its memory once, as fast as the link.
#[test]
fn a_program_that_is_as_fast_from_the_host_is_left_alone() {
    let kernels = kernels(100, |_| ModelKernel { size: 10, fast: ms(0), slow: ms(1), moved: ms(1) });
    let mut model = Model::new(&kernels, 600);
    let periods = model.run(400);
    let alone = periods[0];
    let all: Duration = periods.iter().sum();
    assert!(all < alone * 400 * 105 / 100, "{:?} and {:?} alone", all / 400, alone);
    assert!(model.waited * 20 < all, "{:?} of {all:?}", model.waited);
}
