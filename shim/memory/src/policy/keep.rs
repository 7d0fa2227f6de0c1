//! How much idle memory stays for the program's next need, where it frees without a stream.
//!
//! The driver's `cuMemFree` gives memory back at once, and other processes can have it. Ours keeps a stated amount, since mapping
//! costs more than a hit. A program that soon needs again what was given back repeats itself: then as much more is kept,
//! until it needs no call. Once it has made no new memory for a while, only the stated amount stays.
//!
//! Pure: the caller says what time it is.

use std::time::{Duration, Instant};

/// How long what was given back is remembered.
#[derive(Debug)]
struct KeepTimes {
    /// Memory that is made again within this time was given back too soon.
    regret: Duration,
    /// After so long without new memory the program does something else than before.
    forget: Duration,
}

const OF_THE_DEVICE: KeepTimes =
    KeepTimes { regret: Duration::from_secs(2), forget: Duration::from_secs(30) };

/// Pinned memory takes a hundred times as long to make, and a program that overflows takes its steps slowly.
const OF_THE_HOST: KeepTimes =
    KeepTimes { regret: Duration::from_secs(60), forget: Duration::from_secs(300) };

/// What was given back, and what came of it. Sizes are bytes.
#[derive(Debug)]
pub struct Keep {
    times: KeepTimes,
    /// Kept beyond the stated amount.
    more: u64,
    /// Given back last, as far as it was not made again.
    given: u64,
    given_at: Option<Instant>,
    made_at: Option<Instant>,
}

impl Default for Keep {
    fn default() -> Self {
        Self { times: OF_THE_DEVICE, more: 0, given: 0, given_at: None, made_at: None }
    }
}

impl Keep {
    /// For pinned memory of the host.
    pub fn of_the_host() -> Self {
        Self { times: OF_THE_HOST, ..Self::default() }
    }

    /// Of so much `idle` memory, how much may go.
    pub fn excess(&mut self, idle: u64, stated: u64, now: Instant) -> u64 {
        if self.made_at.is_some_and(|made| now.duration_since(made) > self.times.forget) {
            self.more = 0;
        }
        idle.saturating_sub(stated.saturating_add(self.more))
    }

    /// So much was given back.
    pub fn gave(&mut self, bytes: u64, now: Instant) {
        let recent = self.given_at.is_some_and(|given| now.duration_since(given) <= self.times.regret);
        self.given = if recent { self.given.saturating_add(bytes) } else { bytes };
        self.given_at = Some(now);
    }

    /// So much was made.
    pub fn made(&mut self, bytes: u64, now: Instant) {
        self.made_at = Some(now);
        if self.given_at.is_some_and(|given| now.duration_since(given) <= self.times.regret) {
            let again = bytes.min(self.given);
            self.given -= again;
            self.more = self.more.saturating_add(again);
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
        keep.made(9 * GIB, now + 2 * OF_THE_DEVICE.regret);
        assert_eq!(keep.excess(10 * GIB, GIB, now + 2 * OF_THE_DEVICE.regret), 9 * GIB);
        keep.gave(9 * GIB, now + 2 * OF_THE_DEVICE.regret);
        keep.made(9 * GIB, now + 3 * OF_THE_DEVICE.regret);
        assert_eq!(keep.excess(10 * GIB, GIB, now + 3 * OF_THE_DEVICE.regret), 0);
        assert_eq!(
            keep.excess(10 * GIB, GIB, now + 3 * OF_THE_DEVICE.regret + 2 * OF_THE_DEVICE.forget),
            9 * GIB
        );
    }
}
