//! The end of a run: after a number of seconds, or when the user interrupts it. A worker checks it
//! before a long step.
//!
//! Invariant: a run that is over stays over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The deadline; `None` if there is none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct End(Option<Instant>);

impl End {
    pub(crate) fn after(time: Option<Duration>) -> Self {
        Self(time.and_then(|time| Instant::now().checked_add(time)))
    }

    /// The earlier of this deadline and `time` from now.
    pub(crate) fn or_after(self, time: Duration) -> Self {
        let sooner = Self::after(Some(time));
        Self(self.0.into_iter().chain(sooner.0).min())
    }

    pub(crate) fn is_over(self) -> bool {
        INTERRUPTED.load(Ordering::Relaxed) || self.0.is_some_and(|end| Instant::now() >= end)
    }
}

/// From now on an interrupt ends the run, which still reports its results.
pub(crate) fn listen_for_interrupts() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let handler: extern "C" fn(libc::c_int) = interrupted;
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

extern "C" fn interrupted(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    //! Hazard: a run goes on after its time.
    use super::*;

    #[test]
    fn the_sooner_end_counts() {
        let (none, hour) = (End::default(), Duration::from_secs(3600));
        assert!(!none.is_over() && !End::after(Some(hour)).is_over());
        assert!(none.or_after(Duration::ZERO).is_over());
        assert!(End::after(Some(Duration::ZERO)).or_after(hour).is_over());
    }
}
