//! The times that threads of one copy ran and waited, as the kernel counts them. Relaxed atomics,
//! no lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The times that threads of a copy ran and waited.
#[derive(Debug, Default)]
pub(crate) struct ThreadTimes {
    ran: AtomicU64,
    waited: AtomicU64,
}

impl ThreadTimes {
    /// Adds a thread's time on a core, and its time without one though it was ready.
    pub(crate) fn add(&self, ran: Duration, waited: Duration) {
        self.ran.fetch_add(ran.as_nanos() as u64, Relaxed);
        self.waited.fetch_add(waited.as_nanos() as u64, Relaxed);
    }

    /// The part of their time that they waited for a core. `None` if the kernel did not count it.
    pub(crate) fn part(&self) -> Option<f64> {
        let (ran, waited) = (self.ran.load(Relaxed) as f64, self.waited.load(Relaxed) as f64);
        (ran + waited > 0.0).then(|| waited / (ran + waited))
    }
}
