//! When a call of the program passed the gate last, for processes that take turns.
//!
//! The clock is the kernel's coarse one: a few nanoseconds for a time that is some milliseconds
//! old. The time is stored only when it has changed, so threads on many processors seldom write it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// See above.
pub(super) struct LastCall {
    /// Decided at load.
    is_on: AtomicBool,
    /// Milliseconds of the coarse clock.
    at: AtomicU64,
}

impl LastCall {
    pub(super) const fn new() -> Self {
        Self { is_on: AtomicBool::new(false), at: AtomicU64::new(0) }
    }

    pub(super) fn turn_on(&self) {
        self.at.store(now(), Relaxed);
        self.is_on.store(true, Relaxed);
    }

    /// A call passes.
    #[inline]
    pub(super) fn note(&self) {
        if self.is_on.load(Relaxed) {
            let now = now();
            if self.at.load(Relaxed) != now {
                self.at.store(now, Relaxed);
            }
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_millis(now().saturating_sub(self.at.load(Relaxed)))
    }
}

/// Of the coarse clock, which does not stop while the process does.
#[inline]
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills a local structure. This clock exists on every kernel, so there is no error, and
    // `errno` stays.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    //! Hazard (thrashing): a process that launches all the time counts as idle.
    use super::*;

    #[test]
    fn the_time_since_the_last_call_grows_until_the_next_one() {
        let last = LastCall::new();
        last.note();
        assert_eq!(last.at.load(Relaxed), 0, "it is off");
        last.turn_on();
        while last.elapsed() < Duration::from_millis(20) {
            std::thread::yield_now();
        }
        last.note();
        assert!(last.elapsed() < Duration::from_millis(20));
    }
}
