//! What threads of one copy had of the cores, as the kernel counts it. Relaxed atomics, no lock.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What threads of a copy had of the cores.
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

    /// The part of their time that they waited for a core. `None`: it was not counted.
    pub(crate) fn part(&self) -> Option<f64> {
        let (ran, waited) = (self.ran.load(Relaxed) as f64, self.waited.load(Relaxed) as f64);
        (ran + waited > 0.0).then(|| waited / (ran + waited))
    }
}
