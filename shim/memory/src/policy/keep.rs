//! How much idle memory stays for the program's next need, where it frees without a stream: on the device, and on other tiers.
//!
//! The driver's `cuMemFree` gives memory back at once, and other processes can have it. Ours keeps a stated amount, since mapping
//! costs more than a hit. A program that soon needs again what was given back repeats itself: then as much more is kept,
//! until it needs no call. Once it has made no new memory for a while, only the stated amount stays.
//!
//! Pure: the caller says what time it is.

use std::time::{Duration, Instant};

/// Memory that is made again within this time was given back too soon.
const REGRET: Duration = Duration::from_secs(2);

/// After so long without new memory the program does something else than before.
const FORGET: Duration = Duration::from_secs(30);

/// What was given back, and what came of it. Sizes are bytes.
#[derive(Debug, Default)]
pub struct Keep {
    /// Kept beyond the stated amount.
    more: u64,
    /// Given back last, as far as it was not made again.
    given: u64,
    given_at: Option<Instant>,
    made_at: Option<Instant>,
}

impl Keep {
    /// Of so much `idle` memory, how much may go.
    pub fn excess(&mut self, idle: u64, stated: u64, now: Instant) -> u64 {
        if self.made_at.is_some_and(|made| now.duration_since(made) > FORGET) {
            self.more = 0;
        }
        idle.saturating_sub(stated.saturating_add(self.more))
    }

    /// So much was given back.
    pub fn gave(&mut self, bytes: u64, now: Instant) {
        let recent = self.given_at.is_some_and(|given| now.duration_since(given) <= REGRET);
        self.given = if recent { self.given.saturating_add(bytes) } else { bytes };
        self.given_at = Some(now);
    }

    /// So much was made.
    pub fn made(&mut self, bytes: u64, now: Instant) {
        self.made_at = Some(now);
        if self.given_at.is_some_and(|given| now.duration_since(given) <= REGRET) {
            let again = bytes.min(self.given);
            self.given -= again;
            self.more = self.more.saturating_add(again);
        }
    }
}

/// So many bytes go at a time: they take some 16 ms where they are pinned.
const AT_ONCE: u64 = 1 << 30;

/// Idle memory of the host and of other GPUs. To make it took long, so it stays while the program goes past its device, and for a while after.
#[derive(Debug, Default)]
pub(crate) struct KeepElsewhere {
    used: u64,
    since: Option<Instant>,
}

impl KeepElsewhere {
    /// Of so much `idle` memory, how much may go. `used` differs from the last call's where memory there was used since.
    pub(crate) fn excess(&mut self, idle: u64, used: u64, now: Instant) -> u64 {
        match self.since.filter(|_| self.used == used) {
            Some(since) if now.duration_since(since) > FORGET => idle.min(AT_ONCE),
            Some(_) => 0,
            None => {
                *self = Self { used, since: Some(now) };
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: other processes find no memory, or a program that repeats itself maps its memory anew in every period.
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn what_is_idle_beyond_the_stated_amount_goes() {
        let (mut keep, now) = (Keep::default(), Instant::now());
        assert_eq!(keep.excess(83 * GIB, GIB, now), 82 * GIB);
        assert_eq!(keep.excess(GIB / 2, GIB, now), 0);
    }

    #[test]
    fn a_program_that_comes_back_at_once_keeps_what_it_needs() {
        let (mut keep, mut now) = (Keep::default(), Instant::now());
        let mut calls = Vec::new();
        for _ in 0..4 {
            let excess = keep.excess(10 * GIB, GIB, now);
            keep.gave(excess, now);
            now += Duration::from_millis(300);
            keep.made(excess, now);
            calls.push(excess / GIB);
        }
        assert_eq!(calls, [9, 0, 0, 0]);
    }

    #[test]
    fn one_that_comes_back_late_or_no_more_keeps_the_stated_amount() {
        let (mut keep, now) = (Keep::default(), Instant::now());
        keep.gave(9 * GIB, now);
        keep.made(9 * GIB, now + 2 * REGRET);
        assert_eq!(keep.excess(10 * GIB, GIB, now + 2 * REGRET), 9 * GIB);
        keep.gave(9 * GIB, now + 2 * REGRET);
        keep.made(9 * GIB, now + 3 * REGRET);
        assert_eq!(keep.excess(10 * GIB, GIB, now + 3 * REGRET), 0);
        assert_eq!(keep.excess(10 * GIB, GIB, now + 3 * REGRET + 2 * FORGET), 9 * GIB);
    }

    /// Hazard: a program that is past its device no more pins the machine's memory until it ends, or one that is waits for it to be pinned anew.
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
}
