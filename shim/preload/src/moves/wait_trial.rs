//! Whether waits for an idle GPU pay in this program: it is measured with them and without them.
//!
//! A program that repeats itself has a pace, the time of an event averaged over whole periods. One
//! measurement is made without waits, and without moves after the host's own waits; the next with
//! both, and their cost and that of the copies is in it. While the program is faster with them,
//! they go on; else there are none for a number of periods, twice as many after each trial. A trial
//! begins once the waits of a good part of a period are earned ([`super::wait_budget`]).
//!
//! A plain value: time, events and credit are told.

use std::fmt;
use std::time::Duration;

use super::wait_budget::WaitWorth;

/// Events that a measurement takes at least.
const EVENTS: u64 = 64;

/// Waits that brought moves, in a measurement with waits.
const WAITS: u32 = 4;

/// Periods in which there were fewer: then they gain nothing.
const TOO_FEW: u64 = 4;

/// With waits a period takes at most so much of the time without.
const GAIN: f64 = 0.98;

/// A trial begins with credit for waits of one part in so many of a measurement's time.
const EARNED: u32 = 4;

/// Credit that is enough for a trial of any program.
const ENOUGH: Duration = Duration::from_secs(2);

/// Periods in which memory comes to lie as it will with waits, before one is measured.
const SETTLING: u32 = 2;

/// Measurements without waits after a trial without a gain.
const REST: u32 = 4;
const LONGEST_REST: u32 = 256;

/// How far the program has come.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TrialClock {
    pub(super) event: u64,
    pub(super) time: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// The program does not repeat itself.
    #[default]
    Untold,
    /// No waits, for so many measurements more.
    Without(u32),
    /// With waits, in a program that still finds its memory elsewhere.
    Settling(u32),
    With,
    Paying,
}

/// See above.
#[derive(Debug, Default)]
pub(super) struct WaitTrial {
    phase: Phase,
    begin: TrialClock,
    /// Waits that brought moves, since then.
    waits: u32,
    /// Seconds of an event without waits.
    without: f64,
    /// The same in the last measurement.
    last: f64,
    trials: u32,
}

impl fmt::Display for WaitTrial {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = match self.worth() {
            WaitWorth::Unknown => "it does not repeat itself yet",
            WaitWorth::Trial => "it is measured with waits and moves",
            WaitWorth::Costs => "it goes on without waits",
            WaitWorth::Pays => "waits and moves pay",
        };
        let [without, with] = [self.without, self.last].map(|seconds| seconds * 1e6);
        write!(out, "{now}: an event took {without:.1} us without them, {with:.1} us in the last measurement")
    }
}

impl WaitTrial {
    pub(super) fn worth(&self) -> WaitWorth {
        match self.phase {
            Phase::Untold => WaitWorth::Unknown,
            Phase::Settling(_) | Phase::With => WaitWorth::Trial,
            Phase::Without(_) => WaitWorth::Costs,
            Phase::Paying => WaitWorth::Pays,
        }
    }

    /// A wait has brought moves.
    pub(super) fn count_wait(&mut self) {
        self.waits += 1;
    }

    /// An event; `period`: the events of a period, if the program repeats itself. `clock` tells the
    /// time, and the time that waits may take by now.
    #[inline]
    pub(super) fn record(
        &mut self,
        event: u64,
        period: Option<u64>,
        clock: impl FnOnce() -> (Duration, Duration),
    ) {
        let is_over = period.is_none_or(|period| event - self.begin.event >= period.max(EVENTS));
        if is_over && (period.is_some() || self.phase != Phase::Untold) {
            let (time, credit) = clock();
            self.end_measurement(TrialClock { event, time }, credit, period);
        }
    }

    fn end_measurement(&mut self, now: TrialClock, credit: Duration, period: Option<u64>) {
        let Some(period) = period else {
            *self = Self::default();
            return;
        };
        let is_with = matches!(self.phase, Phase::Settling(_) | Phase::With);
        let events = (now.event - self.begin.event).max(1);
        if is_with && self.waits < WAITS {
            if events >= TOO_FEW * period.max(EVENTS) {
                self.rest();
                (self.begin, self.waits) = (now, 0);
            }
            return;
        }
        let time = now.time - self.begin.time;
        let is_earned = credit >= (time / EARNED).min(ENOUGH);
        self.judge(time.as_secs_f64() / events as f64, is_earned);
        (self.begin, self.waits) = (now, 0);
    }

    fn judge(&mut self, pace: f64, is_earned: bool) {
        self.last = pace;
        match self.phase {
            Phase::Untold => self.phase = Phase::Without(1),
            Phase::Without(left) => {
                self.without = pace;
                self.phase = match left {
                    2.. => Phase::Without(left - 1),
                    _ if is_earned => Phase::Settling(SETTLING),
                    _ => Phase::Without(1),
                };
            }
            Phase::Settling(left) => {
                self.phase = if left > 1 { Phase::Settling(left - 1) } else { Phase::With };
            }
            Phase::With | Phase::Paying if pace <= GAIN * self.without => {
                (self.phase, self.trials) = (Phase::Paying, 0);
            }
            Phase::With | Phase::Paying => self.rest(),
        }
    }

    /// A trial has gained nothing.
    fn rest(&mut self) {
        self.phase = Phase::Without((REST << self.trials.min(10)).min(LONGEST_REST));
        self.trials += 1;
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (latency): a program that gains nothing by waits goes on waiting; or one that gains
    //! by them has none.
    use super::*;

    /// The worths of the events of a program with periods of 100 events, each of so many
    /// microseconds without waits and with them.
    fn run(periods: usize, without: u64, with: u64) -> Vec<WaitWorth> {
        let (mut trial, mut time) = (WaitTrial::default(), Duration::ZERO);
        let mut worths = Vec::new();
        for event in 0..100 * periods as u64 {
            let waits = trial.worth() != WaitWorth::Costs;
            time += Duration::from_micros(if waits { with } else { without });
            if waits && event % 10 == 0 {
                trial.count_wait();
            }
            trial.record(event, Some(100), || (time, ENOUGH));
            worths.push(trial.worth());
        }
        worths
    }

    #[test]
    fn waits_that_pay_go_on() {
        let worths = run(40, 100, 60);
        assert!(worths[1000..].iter().all(|worth| *worth == WaitWorth::Pays), "{:?}", worths[1000]);
    }

    #[test]
    fn waits_that_do_not_pay_become_ever_rarer() {
        let worths = run(400, 100, 100);
        let allowed = worths.iter().filter(|worth| **worth != WaitWorth::Costs).count();
        assert!((200..3000).contains(&allowed), "{allowed} of {}", worths.len());
        assert!(!worths.contains(&WaitWorth::Pays));
    }

    #[test]
    fn waits_that_have_paid_end_when_the_program_becomes_slower_with_them() {
        let (mut trial, mut time) = (WaitTrial::default(), Duration::ZERO);
        for event in 0..4000_u64 {
            let waits = trial.worth() != WaitWorth::Costs;
            let with = if event < 2000 { 60 } else { 150 };
            time += Duration::from_micros(if waits { with } else { 100 });
            trial.count_wait();
            trial.record(event, Some(100), || (time, ENOUGH));
            assert!(event != 1999 || trial.worth() == WaitWorth::Pays);
        }
        assert_ne!(trial.worth(), WaitWorth::Pays);
    }

    #[test]
    fn a_program_that_does_not_repeat_itself_is_not_measured() {
        let mut trial = WaitTrial::default();
        for event in 0..1000 {
            trial.record(event, None, || panic!("its clock is not read"));
            assert_eq!(trial.worth(), WaitWorth::Unknown);
        }
        trial.record(1000, Some(10), || (Duration::ZERO, ENOUGH));
        assert_eq!(trial.worth(), WaitWorth::Costs, "the first measurement is without waits");
        trial.record(1001, None, || (Duration::ZERO, ENOUGH));
        assert_eq!(trial.worth(), WaitWorth::Unknown);
    }

    /// Hazard (latency): waits go on where none finds the GPU idle.
    #[test]
    fn a_trial_whose_waits_bring_nothing_ends() {
        let mut trial = WaitTrial::default();
        let worths: Vec<_> = (0..20_000_u64)
            .map(|event| {
                trial.record(event, Some(100), || (Duration::from_micros(event), ENOUGH));
                trial.worth()
            })
            .collect();
        let allowed = worths.iter().filter(|worth| **worth != WaitWorth::Costs).count();
        assert!((400..3500).contains(&allowed), "{allowed} of {}", worths.len());
    }

    /// Hazard (latency): waits beyond their share. Hazard (silent degradation): a trial whose waits
    /// are used up at once, so that nothing is measured.
    #[test]
    fn a_trial_begins_when_its_waits_are_earned() {
        let mut trial = WaitTrial::default();
        let mut record = |event: u64, credit| {
            let time = Duration::from_millis(event);
            trial.record(event, Some(100), || (time, Duration::from_millis(credit)));
            trial.worth()
        };
        assert!((0..1000).all(|event| record(event, 24) != WaitWorth::Trial));
        assert!((1000..1201).any(|event| record(event, 25) == WaitWorth::Trial));
    }
}
