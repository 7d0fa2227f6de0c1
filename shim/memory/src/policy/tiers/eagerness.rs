//! Whether the blocks of a launch come to the device before it, or are read where they lie.
//!
//! To read memory over the link once costs as much as its move, if the kernel reads as fast as the
//! link carries. Some do not: one that multiplies a matrix by a vector has a tenth of that. The
//! driver does not tell which kernel is of that kind, so both ways are tried: where a period uses
//! the host slowly, the next ones are *eager*, and it stays so as long as they take less time.
//!
//! Time is told, not asked for. Invariant: without a period nothing is eager.

/// A period that uses more of the host in a second than this is bound by the link: half of the
/// bytes that one carries.
const SLOW: f64 = 25e9;

/// Less is not worth a try, in a period.
const LEAST: u64 = 64 << 20;

/// Events that a measurement takes at least.
const EVENTS: u64 = 64;

/// An eager period takes at most so much of a lazy one's time.
const GAIN: f64 = 0.95;

/// One that has taken so many times a lazy one's time is not waited for.
const OVERDUE: f64 = 1.5;

/// Periods after a try without a gain before the next one; twice as many after each.
const REST: u32 = 4;
const LONGEST_REST: u32 = 256;

/// How far the program has come.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ProgramClock {
    pub(super) seconds: f64,
    pub(super) event: u64,
    /// Bytes that launches have used from the host so far.
    pub(super) from_host: u64,
}

#[derive(Debug)]
pub(super) struct Eagerness {
    is_eager: bool,
    /// The first eager period brings the blocks that later ones find: it does not count.
    is_first: bool,
    begin: ProgramClock,
    /// Seconds of an event, when nothing came before its use.
    lazy: f64,
    rests: u32,
    next_rest: u32,
}

impl Default for Eagerness {
    fn default() -> Self {
        Self {
            is_eager: false,
            is_first: false,
            begin: ProgramClock::default(),
            lazy: 0.0,
            rests: 0,
            next_rest: REST,
        }
    }
}

impl Eagerness {
    pub(super) fn is_eager(&self) -> bool {
        self.is_eager
    }

    /// Does a measurement begin or end at this event, so that the time has to be told?
    pub(super) fn needs_time(&self, event: u64, period: Option<u64>) -> bool {
        self.is_eager || period.is_none_or(|period| event - self.begin.event >= period.max(EVENTS))
    }

    /// `period`: its events, if the program repeats itself.
    pub(super) fn record_stop(&mut self, now: ProgramClock, period: Option<u64>) {
        let Some(period) = period else {
            (self.is_eager, self.begin) = (false, now);
            return;
        };
        let (events, least) = (now.event - self.begin.event, period.max(EVENTS));
        if self.is_eager && now.seconds - self.begin.seconds > OVERDUE * self.lazy * least as f64 {
            self.give_up();
            self.begin = now;
        }
        if events < least {
            return;
        }
        let seconds = now.seconds - self.begin.seconds;
        let bytes = now.from_host - self.begin.from_host;
        self.judge(seconds, seconds / events as f64, bytes);
        self.begin = now;
    }

    /// A period is over.
    fn judge(&mut self, seconds: f64, an_event: f64, bytes: u64) {
        if !self.is_eager {
            self.lazy = an_event;
            if self.rests > 0 {
                self.rests -= 1;
            } else if bytes >= LEAST && bytes as f64 / seconds < SLOW {
                (self.is_eager, self.is_first) = (true, true);
            }
        } else if self.is_first {
            self.is_first = false;
        } else if an_event > GAIN * self.lazy {
            self.give_up();
        } else {
            self.next_rest = REST;
        }
    }

    fn give_up(&mut self) {
        (self.is_eager, self.rests) = (false, self.next_rest);
        self.next_rest = (2 * self.next_rest).min(LONGEST_REST);
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: memory is carried to the device for nothing, again and again; or a program stays as
    //! slow as its kernels read the host.
    use super::*;

    /// Runs periods of 100 events with these times for lazy and eager ones, and these bytes of the
    /// host in a lazy one. Returns which periods were eager.
    fn periods(lazy: f64, eager: f64, bytes: u64, count: usize) -> Vec<bool> {
        let (mut eagerness, mut now) = (Eagerness::default(), ProgramClock::default());
        let mut period = || {
            let is_eager = eagerness.is_eager();
            for _ in 0..100 {
                now.event += 1;
                now.seconds += if is_eager { eager } else { lazy } / 100.0;
                now.from_host += if is_eager { 0 } else { bytes / 100 };
                eagerness.record_stop(now, Some(100));
            }
            is_eager
        };
        (0..count).map(|_| period()).collect()
    }

    #[test]
    fn what_is_faster_stays() {
        let tried = periods(2.0, 0.3, 11 << 30, 40);
        assert!(!tried[0]);
        assert!(tried[1..].iter().all(|is_eager| *is_eager), "{tried:?}");
    }

    #[test]
    fn what_is_no_faster_is_tried_ever_more_seldom() {
        let tried = periods(2.0, 2.0, 11 << 30, 200);
        let eager = tried.iter().filter(|is_eager| **is_eager).count();
        assert!((4..=16).contains(&eager), "{eager} of 200");
    }

    /// Hazard: a try takes many times as long as the program would.
    #[test]
    fn what_is_much_slower_is_not_waited_for() {
        let (mut eagerness, mut now) = (Eagerness::default(), ProgramClock::default());
        let mut seconds = 0.0;
        for _ in 0..1000 {
            let an_event = if eagerness.is_eager() { 1.0 } else { 0.02 };
            seconds += if eagerness.is_eager() { an_event } else { 0.0 };
            now = ProgramClock {
                event: now.event + 1,
                seconds: now.seconds + an_event,
                from_host: now.from_host + (1 << 20),
            };
            eagerness.record_stop(now, Some(100));
        }
        assert!((3.0..10.0).contains(&seconds), "{seconds} s of tries in 10 periods of 2 s");
    }

    #[test]
    fn who_uses_little_or_is_bound_by_the_link_is_left_alone() {
        assert!(!periods(2.0, 0.1, 10 << 20, 20).contains(&true));
        assert!(!periods(0.2, 0.1, 10 << 30, 20).contains(&true));
    }

    #[test]
    fn without_a_period_nothing_is_eager() {
        let mut eagerness = Eagerness { is_eager: true, ..Eagerness::default() };
        eagerness.record_stop(ProgramClock { seconds: 1.0, event: 1000, from_host: 1 << 40 }, None);
        assert!(!eagerness.is_eager());
    }
}
