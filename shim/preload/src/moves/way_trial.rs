//! Which way of placing memory is the fastest for this program: each is measured.
//!
//! A program that repeats itself has a pace, the time of an event averaged over whole periods. The
//! cost of a way is the program's pace with it, with all waits and copies. Reading memory over the
//! link once costs as much as its move, if the kernel reads as fast as the link carries. Some
//! kernels do not: one that gathers rows, or multiplies large matrices, reads the same bytes many
//! times. The driver does not tell which kernel is of that kind, so no rule is better than the
//! measurement.
//!
//! | way | what moves |
//! |---|---|
//! | [`Way::Leave`] | nothing, and no call waits |
//! | [`Way::Follow`] | blocks that are used much sooner than those that leave for them |
//! | [`Way::Bring`] | each block of a kernel, before the kernel |
//!
//! What a program costs before it is known to repeat itself stands for [`Way::Leave`] until that is
//! measured. A measurement ends early where it has become slower than the best way, so a trial
//! costs little more than a period of the best. Invariant: before the first period is known, and
//! while the waits of a trial are not earned yet ([`super::wait_budget`]), calls wait within their
//! share.
//!
//! A plain value: time, events and credit are told.

use std::fmt;
use std::time::Duration;

use super::pace_log::PaceLog;
use super::wait_budget::{WAIT, WaitWorth};

/// Events that a measurement takes at least.
const EVENTS: u64 = 64;

/// Events between two looks at the clock while a way is tried.
const LOOK: u64 = 16;

/// A way that moves memory takes at most so much of the time of one that does not.
const GAIN: f64 = 0.98;

/// A measurement ends when it has taken so many times the best way's time; while memory comes to
/// lie as the way has it, so many times.
const OVERDUE: f64 = 1.1;
const UNSETTLED: f64 = 3.0;

/// A program that uses more of the host in a second than this is bound by the link: half of the
/// bytes that one carries.
const SLOW: f64 = 25e9;

/// A trial begins with credit for waits of one part in so many of a period.
const EARNED: u32 = 8;

/// Credit that is enough for a trial of any program.
const ENOUGH: Duration = Duration::from_secs(2);

/// Waits that brought moves, in a measurement of a way that makes them.
const WAITS: u32 = 4;

/// Periods in which there were fewer: then they gain nothing.
const TOO_FEW: u64 = 4;

/// Periods of the best way before another one is tried again; twice as many after each vain trial.
const REST: u32 = 4;
const LONGEST_REST: u32 = 256;

/// How far the program has come.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TrialClock {
    pub(super) event: u64,
    pub(super) time: Duration,
    /// Bytes that launches have used from the host so far.
    pub(super) from_host: u64,
    /// The time that waits may take by now.
    pub(super) credit: Duration,
}

/// A way of placing memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Leave,
    Follow,
    Bring,
}

/// In the order of trials.
const WAYS: [Way; 3] = [Way::Follow, Way::Bring, Way::Leave];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// The program does not repeat itself.
    #[default]
    Untold,
    /// The program still finds its memory as another way has left it.
    Settling(Way),
    Measuring(Way),
    /// The best of those that were measured. A number of periods goes by until the next trial.
    Chosen(Way, u32),
}

/// See above.
#[derive(Debug, Default)]
pub(super) struct WayTrial {
    phase: Phase,
    begin: TrialClock,
    looked: u64,
    /// Waits that brought moves, since then.
    waits: u32,
    /// Seconds of an event with each way, as far as it is known.
    costs: [Option<f64>; 3],
    /// The ways of which the cost was measured, and not taken from the time before.
    measured: [bool; 3],
    paces: PaceLog,
    trials: usize,
    /// Trials in a row that brought nothing.
    vain: u32,
}

impl fmt::Display for WayTrial {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = match self.phase {
            Phase::Untold => "it does not repeat itself yet".to_owned(),
            Phase::Settling(way) => format!("{way:?} is tried"),
            Phase::Measuring(way) => format!("{way:?} is measured"),
            Phase::Chosen(way, rest) => format!("{way:?} is the best for {rest} periods"),
        };
        write!(out, "{now}; us an event:")?;
        for way in WAYS {
            let cost = self.cost(way).map_or_else(|| "?".to_owned(), |cost| format!("{:.1}", cost * 1e6));
            write!(out, " {way:?} {cost}")?;
        }
        Ok(())
    }
}

impl WayTrial {
    pub(super) fn worth(&self) -> WaitWorth {
        match self.phase {
            Phase::Untold => WaitWorth::Unknown,
            Phase::Settling(Way::Leave) | Phase::Measuring(Way::Leave) | Phase::Chosen(Way::Leave, _) => {
                WaitWorth::Costs
            }
            Phase::Settling(_) | Phase::Measuring(_) => WaitWorth::Trial,
            Phase::Chosen(..) => WaitWorth::Pays,
        }
    }

    /// The way of the moment. [`Way::Follow`] where none is measured.
    pub(super) fn way(&self) -> Way {
        match self.phase {
            Phase::Untold => Way::Follow,
            Phase::Settling(way) | Phase::Measuring(way) | Phase::Chosen(way, _) => way,
        }
    }

    /// A wait has brought moves.
    pub(super) fn count_wait(&mut self) {
        self.waits += 1;
    }

    /// An event; `period`: the events of a period, if the program repeats itself. Returns whether
    /// a trial has begun or ended.
    #[inline]
    pub(super) fn record(
        &mut self,
        event: u64,
        period: Option<u64>,
        clock: impl FnOnce() -> TrialClock,
    ) -> bool {
        event - self.looked >= LOOK && {
            let before = self.phase;
            self.look(period, clock());
            before != self.phase
        }
    }

    fn look(&mut self, period: Option<u64>, now: TrialClock) {
        self.looked = now.event;
        match (self.phase, period.map(|period| period.max(EVENTS))) {
            (Phase::Untold, None) => self.paces.add(now),
            (Phase::Untold, Some(period)) => self.begin_trials(now, period),
            (_, None) => *self = Self { looked: now.event, ..Self::default() },
            (Phase::Settling(way) | Phase::Measuring(way), Some(period)) => self.look_at_trial(way, now, period),
            (Phase::Chosen(way, rest), Some(period)) if now.event - self.begin.event >= period => {
                let pace = self.pace(now);
                self.set_cost(way, pace);
                self.rest(way, rest, now, period);
            }
            _ => {}
        }
    }

    /// The first period is known.
    fn begin_trials(&mut self, now: TrialClock, period: u64) {
        self.paces.add(now);
        let Some(past) = self.paces.since(now, period) else { return };
        let (seconds, events) = ((now.time - past.time).as_secs_f64(), (now.event - past.event) as f64);
        self.costs[Way::Leave as usize] = Some(seconds / events);
        let is_slow = ((now.from_host - past.from_host) as f64) < SLOW * seconds;
        let first = if is_slow { Way::Bring } else { Way::Follow };
        if self.is_earned(now, period) {
            self.start(Phase::Settling(first), now);
        } else {
            self.start(Phase::Chosen(Way::Leave, 1), now);
        }
    }

    /// A way is tried, or measured.
    fn look_at_trial(&mut self, way: Way, now: TrialClock, period: u64) {
        let events = now.event - self.begin.event;
        let is_settling = matches!(self.phase, Phase::Settling(_));
        if way != Way::Leave && now.credit < WAIT {
            // Its waits are used up, so what comes now would not be its cost.
            self.vain += 1;
            return self.start(Phase::Chosen(self.best().0, self.vain_rest()), now);
        }
        let best = self.best().1 * period.max(events) as f64;
        let taken = (now.time - self.begin.time).as_secs_f64();
        if taken > best * if is_settling { UNSETTLED } else { OVERDUE } {
            self.set_cost(way, taken / period.max(events) as f64);
            return self.choose(now);
        }
        if events < period {
            return;
        }
        if way != Way::Leave && self.waits < WAITS {
            if events >= TOO_FEW * period {
                let pace = self.pace(now);
                self.set_cost(way, pace);
                self.choose(now);
            }
            return;
        }
        if is_settling {
            return self.start(Phase::Measuring(way), now);
        }
        let pace = self.pace(now);
        self.set_cost(way, pace);
        self.choose(now);
    }

    /// A trial is over: the best way goes on. The next trial is soon if a way was never measured.
    fn choose(&mut self, now: TrialClock) {
        let (tried, best) = (self.way(), self.best().0);
        self.vain = if best == tried { 0 } else { self.vain + 1 };
        let rest = if self.untried().is_some() { 1 } else { self.vain_rest() };
        self.start(Phase::Chosen(best, rest), now);
    }

    fn vain_rest(&self) -> u32 {
        (REST << self.vain.saturating_sub(1).min(10)).min(LONGEST_REST)
    }

    /// A period of the best way is over.
    fn rest(&mut self, way: Way, rest: u32, now: TrialClock, period: u64) {
        let best = self.best().0;
        if best != way {
            // It has become slower. Perhaps the whole program has.
            return self.try_way(best, way, now, period);
        }
        if rest > 1 {
            return self.start(Phase::Chosen(way, rest - 1), now);
        }
        let next = self.untried().unwrap_or_else(|| self.other());
        self.try_way(next, way, now, period);
    }

    /// A way is tried beside the chosen one, if its waits are earned.
    fn try_way(&mut self, next: Way, chosen: Way, now: TrialClock, period: u64) {
        let may_begin = next == Way::Leave || self.is_earned(now, period);
        let phase = match next {
            _ if !may_begin => Phase::Chosen(chosen, 1),
            Way::Leave => Phase::Measuring(next),
            Way::Follow | Way::Bring => Phase::Settling(next),
        };
        self.start(phase, now);
    }

    fn start(&mut self, phase: Phase, now: TrialClock) {
        self.trials += usize::from(matches!(phase, Phase::Measuring(_)));
        (self.phase, self.begin, self.waits) = (phase, now, 0);
    }

    /// Are the waits of a trial earned?
    fn is_earned(&self, now: TrialClock, period: u64) -> bool {
        let cost = self.cost(Way::Leave).unwrap_or_default() * period as f64;
        now.credit >= (Duration::from_secs_f64(cost) / EARNED).saturating_mul(1 << self.vain.min(8)).min(ENOUGH)
    }

    fn pace(&self, now: TrialClock) -> f64 {
        (now.time - self.begin.time).as_secs_f64() / (now.event - self.begin.event).max(1) as f64
    }

    fn cost(&self, way: Way) -> Option<f64> {
        self.costs[way as usize]
    }

    fn set_cost(&mut self, way: Way, cost: f64) {
        (self.costs[way as usize], self.measured[way as usize]) = (Some(cost), true);
    }

    fn untried(&self) -> Option<Way> {
        WAYS.into_iter().find(|way| !self.measured[*way as usize])
    }

    /// Of the known ways. One that moves memory has to gain something.
    fn best(&self) -> (Way, f64) {
        let known = WAYS.into_iter().filter_map(|way| Some((way, self.cost(way)?)));
        let rank = |(way, cost): &(Way, f64)| if *way == Way::Leave { GAIN * cost } else { *cost };
        known.min_by(|one, other| rank(one).total_cmp(&rank(other))).unwrap_or((Way::Leave, f64::INFINITY))
    }

    /// The ways that are not the best take turns.
    fn other(&self) -> Way {
        let best = self.way();
        let mut others = WAYS.into_iter().filter(|way| *way != best);
        others.nth(self.trials % 2).unwrap_or(Way::Leave)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (latency): a program goes on with a way that is slower than to leave memory in place.
    //! Hazard (silent degradation): a way that is faster is not found.
    use proptest::prelude::*;

    use super::*;

    const PERIOD: u64 = 160;

    /// A program with periods of [`PERIOD`] events, which costs so many microseconds an event with
    /// each way. Returns the way of each period's last event, and the microseconds of each period.
    fn run(periods: usize, cost: impl Fn(Way, usize) -> u64) -> Vec<(Way, u64)> {
        let (mut trial, mut now) = (WayTrial::default(), TrialClock::default());
        let mut period = |number: usize| {
            let begin = now.time;
            for _ in 0..PERIOD {
                let way = if trial.worth() == WaitWorth::Unknown { Way::Leave } else { trial.way() };
                now.event += 1;
                now.time += Duration::from_micros(cost(way, number));
                now.from_host += 1000;
                now.credit = ENOUGH;
                if way != Way::Leave && now.event % 10 == 0 {
                    trial.count_wait();
                }
                trial.record(now.event, (now.event > 2 * PERIOD).then_some(PERIOD), || now);
            }
            (trial.way(), (now.time - begin).as_micros() as u64)
        };
        (0..periods).map(&mut period).collect()
    }

    fn of([leave, follow, bring]: [u64; 3]) -> impl Fn(Way, usize) -> u64 {
        move |way, _| match way {
            Way::Leave => leave,
            Way::Follow => follow,
            Way::Bring => bring,
        }
    }

    proptest! {
        /// The contract: at most 1.05 of the best way in the long run, and a bounded transient.
        #[test]
        fn the_best_way_is_found_and_trials_cost_little(
            costs in [20..2000_u64, 20..2000_u64, 20..2000_u64],
        ) {
            let periods = run(600, of(costs));
            let best = *costs.iter().min().expect("three ways") * PERIOD;
            let late: u64 = periods[100..].iter().map(|(_, time)| time).sum();
            prop_assert!(late as f64 <= 1.05 * (500 * best) as f64, "{} of {}", late, 500 * best);
            let early: u64 = periods[2..20].iter().map(|(_, time)| time).sum();
            // Of the first trials one settles and is measured where the best is not known yet.
            let bound = 2 * costs[0] * PERIOD * (UNSETTLED as u64 + 2) + 18 * best * 3;
            prop_assert!(early <= bound, "{early} of {bound}");
        }
    }

    #[test]
    fn a_program_that_becomes_slower_with_its_way_gets_another() {
        let cost = |way, number| match (way, number) {
            (Way::Leave, _) => 100,
            (_, 0..100) => 50,
            _ => 200,
        };
        let periods = run(200, cost);
        assert!(periods[60..100].iter().filter(|(way, _)| *way != Way::Leave).count() > 30);
        assert!(periods[140..].iter().filter(|(way, _)| *way == Way::Leave).count() > 45, "{periods:?}");
    }

    #[test]
    fn a_program_that_does_not_repeat_itself_is_not_measured() {
        let mut trial = WayTrial::default();
        for event in 0..10_000 {
            let now = TrialClock { event, time: Duration::from_micros(event), ..TrialClock::default() };
            trial.record(event, None, || now);
            assert_eq!(trial.worth(), WaitWorth::Unknown);
        }
    }

    /// Hazard (latency): waits go on where none finds the GPU idle.
    #[test]
    fn a_trial_whose_waits_bring_nothing_ends() {
        let mut trial = WayTrial::default();
        let is_allowed = |event: u64| {
            let time = Duration::from_micros(event);
            let now = TrialClock { event, time, from_host: 0, credit: ENOUGH };
            trial.record(event, (event > 200).then_some(100), || now);
            event > 200 && trial.worth() != WaitWorth::Costs
        };
        let allowed = (0..100_000_u64).map(is_allowed).filter(|is_allowed| *is_allowed).count();
        assert!((400..12_000).contains(&allowed), "{allowed} of 100000");
    }

    /// Hazard (latency): waits beyond their share. Hazard (silent degradation): a trial whose waits
    /// are used up at once, so that nothing is measured.
    #[test]
    fn a_trial_begins_when_its_waits_are_earned() {
        let mut trial = WayTrial::default();
        let mut record = |event: u64, credit| {
            let now = TrialClock { event, time: Duration::from_millis(event), from_host: 0, credit };
            trial.record(event, (event > 200).then_some(100), || now);
            trial.worth()
        };
        assert!((0..1000).all(|event| record(event, Duration::from_millis(11)) != WaitWorth::Trial));
        assert!((1000..1400).any(|event| record(event, Duration::from_millis(30)) == WaitWorth::Trial));
    }
}
