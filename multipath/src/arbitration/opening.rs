//! When a context on a sibling is worth opening for the copies of others. Lock-free.
//!
//! A context on a sibling takes time once, and device memory until the process ends. The bytes that
//! a program will still copy are unknown. So a context is opened when the copies so far would have
//! saved as much time as the opening takes. In the worst case the cost is then twice the optimum.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time that copies could have saved so far.
#[derive(Debug, Default)]
pub(crate) struct DeferredBenefit {
    nanoseconds: AtomicU64,
}

impl DeferredBenefit {
    /// Notes a copy that had paths of the rate `now`, and with all siblings open would have had
    /// `all`, in bytes a second. Returns true once the missed time reaches the time of `opening`.
    pub(crate) fn note(&self, bytes: usize, now: f64, all: f64, opening: Duration) -> bool {
        let saved = bytes as f64 * (1.0 / now - 1.0 / all);
        let saved = if saved.is_finite() && saved > 0.0 { (saved * 1e9) as u64 } else { 0 };
        let before = self.nanoseconds.fetch_add(saved, Ordering::Relaxed);
        saved > 0 && u128::from(before) + u128::from(saved) >= opening.as_nanos()
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a program that copies little holds memory on all siblings, or one that copies much
    //! never gets them.
    use super::*;

    const GIB: usize = 1 << 30;

    #[test]
    fn a_context_is_opened_when_its_time_has_been_missed() {
        let missed = DeferredBenefit::default();
        let copies = (1..=100).find(|_| missed.note(GIB, 55e9, 110e9, Duration::from_millis(300)));
        // 9.76 ms a copy.
        assert_eq!(copies, Some(31));
        assert!(missed.note(1, 1e3, 2e3, Duration::from_millis(300)), "from then on");
    }

    #[test]
    fn what_saves_nothing_opens_nothing() {
        let missed = DeferredBenefit::default();
        for (now, all) in [(55e9, 55e9), (55e9, 50e9), (0.0, 0.0), (f64::NAN, 1.0)] {
            assert!(!missed.note(GIB, now, all, Duration::ZERO), "{now} {all}");
        }
    }
}
