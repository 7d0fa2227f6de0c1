//! How much idle memory stays for the program's next need, where it frees without a stream: on the
//! device, and on other tiers.
//!
//! The driver's `cuMemFree` gives memory back at once, and other processes can have it. Ours keeps
//! a stated amount, since mapping costs more than a hit. A program that soon needs memory again
//! after it was given back repeats itself: then as much more is kept, up to a bound, until the
//! program needs no call. Memory that was idle for a whole period is not kept beyond the stated
//! amount.
//!
//! Pure: the caller passes the time in, and looks again when a period ends, also if the program
//! makes no call any more.

use std::time::{Duration, Instant};

/// Memory that is made again within this time was given back too soon.
const REGRET: Duration = Duration::from_secs(2);

/// Memory that took long to make is released after this time without a use.
const FORGET: Duration = Duration::from_secs(30);

/// The memory that was given back, and the memory kept in consequence. Sizes are bytes.
#[derive(Debug, Default)]
pub struct Keep {
    /// Kept beyond the stated amount.
    more: u64,
    /// Given back last, as far as it was not made again.
    given: u64,
    given_at: Option<Instant>,
    /// When the period began.
    since: Option<Instant>,
}

impl Keep {
    /// Memory that was idle for this time may be released. It was unused for up to twice the time,
    /// since its last use may lie at the begin of a period.
    pub const PERIOD: Duration = Duration::from_secs(2);

    /// The part of so much `idle` memory that may go. At least the `stated` bytes are kept, and
    /// beyond them no more than `most`.
    pub fn excess(&self, idle: u64, stated: u64, most: u64) -> u64 {
        idle.saturating_sub(stated.saturating_add(self.more).min(most.max(stated)))
    }

    /// Begins a new period if one is over, or none has begun. The caller reports the bytes that it
    /// saw unused in the period to [`Keep::unused`].
    pub fn has_ended_period(&mut self, now: Instant) -> bool {
        let ended = self.next_look().is_none_or(|end| now >= end);
        if ended {
            self.since = Some(now);
        }
        ended
    }

    /// When the period ends.
    pub fn next_look(&self) -> Option<Instant> {
        self.since.map(|since| since + Self::PERIOD)
    }

    /// So much was idle throughout a period.
    pub fn unused(&mut self, bytes: u64, stated: u64) {
        self.more = self.more.saturating_sub(bytes.saturating_sub(stated));
    }

    /// So much was given back.
    pub fn gave(&mut self, bytes: u64, now: Instant) {
        let recent = self.given_at.is_some_and(|given| now.duration_since(given) <= REGRET);
        self.given = if recent { self.given.saturating_add(bytes) } else { bytes };
        self.given_at = Some(now);
    }

    /// So much was made.
    pub fn made(&mut self, bytes: u64, now: Instant) {
        if self.given_at.is_some_and(|given| now.duration_since(given) <= REGRET) {
            let again = bytes.min(self.given);
            self.given -= again;
            self.more = self.more.saturating_add(again);
        }
    }
}

/// So many bytes go at a time: they take some 16 ms where they are pinned.
const AT_ONCE: u64 = 1 << 30;

/// Idle memory of the host and of other GPUs. To make it took long, so it stays while the program
/// goes past its device, and for a while after.
#[derive(Debug, Default)]
pub(crate) struct KeepElsewhere {
    used: u64,
    since: Option<Instant>,
    /// It stays whether it is used or not.
    holds: bool,
}

impl KeepElsewhere {
    /// Of so much `idle` memory, how much may go. `used` differs from the last call's where memory
    /// there was used since.
    pub(crate) fn excess(&mut self, idle: u64, used: u64, now: Instant) -> u64 {
        if self.holds {
            return 0;
        }
        match self.since.filter(|_| self.used == used) {
            Some(since) if now.duration_since(since) >= FORGET => idle.min(AT_ONCE),
            Some(_) => 0,
            None => {
                (self.used, self.since) = (used, Some(now));
                0
            }
        }
    }

    /// When it will have been unused for long enough.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.since.filter(|_| !self.holds).map(|since| since + FORGET)
    }

    /// From now on it stays.
    pub(crate) fn hold(&mut self) {
        self.holds = true;
    }

    /// It goes again once it was not used for long.
    pub(crate) fn let_go(&mut self) {
        self.holds = false;
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: other processes find no memory, or a program that repeats itself maps its memory
    //! anew in every period.
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn what_is_idle_beyond_the_stated_amount_goes() {
        let keep = Keep::default();
        assert_eq!(keep.excess(83 * GIB, GIB, u64::MAX), 82 * GIB);
        assert_eq!(keep.excess(GIB / 2, GIB, u64::MAX), 0);
    }

    /// A program that came back for 9 GiB again and again.
    fn adapted(now: &mut Instant) -> Keep {
        let mut keep = Keep::default();
        let mut calls = Vec::new();
        for _ in 0..4 {
            let excess = keep.excess(10 * GIB, GIB, 40 * GIB);
            keep.gave(excess, *now);
            *now += Duration::from_millis(300);
            keep.made(excess, *now);
            calls.push(excess / GIB);
        }
        assert_eq!(calls, [9, 0, 0, 0]);
        keep
    }

    #[test]
    fn what_a_program_comes_back_for_is_kept_as_long_as_it_does_and_no_longer() {
        let mut now = Instant::now();
        let mut keep = adapted(&mut now);
        assert!(keep.has_ended_period(now) && !keep.has_ended_period(now + Keep::PERIOD / 2));
        now += Keep::PERIOD;
        assert!(keep.has_ended_period(now), "in which all of it was used");
        keep.unused(0, GIB);
        assert_eq!(keep.excess(10 * GIB, GIB, 40 * GIB), 0);
        assert_eq!(keep.next_look(), Some(now + Keep::PERIOD));
        keep.unused(4 * GIB, GIB);
        assert_eq!(keep.excess(10 * GIB, GIB, 40 * GIB), 3 * GIB);
        keep.unused(7 * GIB, GIB);
        assert_eq!(keep.excess(7 * GIB, GIB, 40 * GIB), 6 * GIB);
    }

    #[test]
    fn no_more_is_kept_than_the_bound_or_what_is_stated() {
        let keep = adapted(&mut Instant::now());
        assert_eq!(keep.excess(10 * GIB, GIB, 6 * GIB), 4 * GIB);
        assert_eq!(keep.excess(10 * GIB, 8 * GIB, 6 * GIB), 2 * GIB);
    }

    #[test]
    fn one_that_comes_back_late_keeps_the_stated_amount() {
        let (mut keep, now) = (Keep::default(), Instant::now());
        keep.gave(9 * GIB, now);
        keep.made(9 * GIB, now + 2 * REGRET);
        assert_eq!(keep.excess(10 * GIB, GIB, u64::MAX), 9 * GIB);
    }

    /// Hazard: a program that is past its device no more pins the machine's memory until it ends,
    /// or one that is waits for it to be pinned anew.
    #[test]
    fn what_lies_elsewhere_goes_when_it_was_not_used_for_a_while() {
        let (mut keep, mut now) = (KeepElsewhere::default(), Instant::now());
        for used in 0..5 {
            assert_eq!(keep.excess(9 * GIB, used, now), 0);
            now += 2 * FORGET;
        }
        assert_eq!(keep.excess(9 * GIB, 4, now), GIB, "a part at a time");
        assert_eq!(keep.excess(GIB / 2, 4, now), GIB / 2);
        assert_eq!(keep.excess(GIB / 2, 5, now), 0, "it was used again");
        assert_eq!(keep.excess(GIB / 2, 5, now + FORGET / 2), 0);
    }

    /// Hazard: a server that is paused once an hour copies out what it has never written, since its
    /// copy on the host has gone.
    #[test]
    fn what_is_held_stays() {
        let (mut keep, now) = (KeepElsewhere::default(), Instant::now());
        assert_eq!(keep.excess(9 * GIB, 1, now), 0);
        assert_eq!(keep.next_look(), Some(now + FORGET));
        keep.hold();
        assert_eq!((keep.excess(9 * GIB, 1, now + 9 * FORGET), keep.next_look()), (0, None));
    }
}
