//! How far the program had come at some moments of the past, so that a pace is known as soon as a
//! period is.
//!
//! Invariant: at most [`MOST`] moments are kept, the older ones farther apart than the newer ones.

use super::way_trial::TrialClock;

const MOST: usize = 64;

/// See above.
#[derive(Debug, Default)]
pub(super) struct PaceLog {
    moments: Vec<TrialClock>,
}

impl PaceLog {
    pub(super) fn add(&mut self, now: TrialClock) {
        if self.moments.len() == MOST {
            // Every other one of the older half goes.
            let mut number = 0;
            self.moments.retain(|_| {
                number += 1;
                number > MOST / 2 || number % 2 == 0
            });
        }
        self.moments.push(now);
    }

    /// The last moment that was at least so many events ago.
    pub(super) fn since(&self, now: TrialClock, events: u64) -> Option<TrialClock> {
        self.moments.iter().rev().find(|moment| moment.event + events <= now.event).copied()
    }
}
