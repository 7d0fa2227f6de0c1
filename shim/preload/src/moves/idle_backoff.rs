//! Waits for an idle GPU: their length, and the back-off after one that timed out. Work may wait
//! for the very thread that waits, so after a timeout no wait is made for a while.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use wm_driver::lock;

/// How long a request that finds no room waits, or a launch for which a block is to move: it would
/// use slow memory otherwise.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// The same where there is no work to wait for: events that are recorded in idle streams take some
/// microseconds to be passed.
pub(super) const GLANCE: Duration = Duration::from_micros(500);

/// The time after a timeout in which no request or launch waits again.
const BACK_OFF: Duration = Duration::from_secs(30);

/// See above.
pub(super) struct IdleBackoff {
    /// `until` holds a time: all that a launch reads.
    has_timed_out: AtomicBool,
    until: Mutex<Option<Instant>>,
}

impl IdleBackoff {
    pub(super) const fn new() -> Self {
        Self { has_timed_out: AtomicBool::new(false), until: Mutex::new(None) }
    }

    /// A wait timed out.
    pub(super) fn begin(&self, now: Instant) {
        let mut until = lock(&self.until);
        *until = Some(now + BACK_OFF);
        self.has_timed_out.store(true, Relaxed);
    }

    /// Is no wait made at present?
    #[inline]
    pub(super) fn is_active(&self, clock: impl FnOnce() -> Instant) -> bool {
        self.has_timed_out.load(Relaxed) && self.ends_after(clock())
    }

    #[cold]
    fn ends_after(&self, now: Instant) -> bool {
        let mut until = lock(&self.until);
        *until = until.filter(|until| now < *until);
        self.has_timed_out.store(until.is_some(), Relaxed);
        until.is_some()
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (deadlock): each launch waits for work that waits for the launching thread.
    use super::*;

    #[test]
    fn a_timeout_begins_a_back_off_that_ends_by_itself() {
        let (back_off, begin) = (IdleBackoff::new(), Instant::now());
        let unread = || panic!("a process without a timeout reads the clock");
        assert!(!back_off.is_active(unread));
        back_off.begin(begin);
        let is_active_after = |time: Duration| back_off.is_active(|| begin + time);
        assert!(is_active_after(Duration::ZERO) && is_active_after(BACK_OFF - GLANCE));
        assert!(!is_active_after(BACK_OFF));
        assert!(!back_off.is_active(unread));
        back_off.begin(begin + BACK_OFF);
        assert!(is_active_after(BACK_OFF + PATIENCE), "a second timeout begins another one");
    }

    #[test]
    fn a_later_timeout_prolongs_the_back_off() {
        let (back_off, begin) = (IdleBackoff::new(), Instant::now());
        back_off.begin(begin);
        back_off.begin(begin + BACK_OFF / 2);
        assert!(back_off.is_active(|| begin + BACK_OFF));
        assert!(!back_off.is_active(|| begin + BACK_OFF + BACK_OFF / 2));
    }
}
