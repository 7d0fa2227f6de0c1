//! How often the source may be asked.
//!
//! A question costs the host a look at its memory manager. Clients that ask in a loop must not turn
//! that into a load, so questions are paid from a bucket: a burst is answered at once, a flood at a
//! steady rate. Answers are never cached: a question after an allocation sees that allocation.

use std::time::{Duration, Instant};

/// Questions that may come at once.
const BURST: u32 = 256;
/// Time that earns one question: 500 a second.
const INTERVAL: Duration = Duration::from_millis(2);

/// A bucket of questions.
#[derive(Debug)]
pub(super) struct RateLimit {
    left: u32,
    counted: Instant,
}

impl RateLimit {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: BURST, counted: now }
    }

    /// Pays for one question. False: not now.
    pub(super) fn admit(&mut self, now: Instant) -> bool {
        self.earn(now);
        let paid = self.left > 0;
        self.left = self.left.saturating_sub(1);
        paid
    }

    /// When the next question can be paid, if none can be now.
    pub(super) fn refill(&self) -> Option<Instant> {
        (self.left == 0).then(|| self.counted + INTERVAL)
    }

    fn earn(&mut self, now: Instant) {
        let earned = now.saturating_duration_since(self.counted).as_nanos() / INTERVAL.as_nanos();
        let earned = u32::try_from(earned).unwrap_or(BURST).min(BURST);
        if earned > 0 {
            self.left = (self.left + earned).min(BURST);
            self.counted = if self.left == BURST { now } else { self.counted + INTERVAL * earned };
        }
    }
}
