//! How many bytes of handles move at a time. More of them use the link better, but calls that wait
//! for the end of a migration, and the signals of its thread, wait for all that is under way.

use std::time::Duration;

/// The time in which the handles under way are to end.
const DRAIN: Duration = Duration::from_millis(3);

/// One part in so many of the rate is the last measurement.
const SMOOTHING: u64 = 4;

/// The measured rate of moves.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    /// Bytes that end within [`DRAIN`]; 0: not measured yet.
    drained: u64,
}

impl Flight {
    /// May another handle begin while so many bytes are under way? One at a time is always allowed.
    pub(crate) fn may_begin(&self, under_way: u64) -> bool {
        under_way == 0 || under_way < self.drained
    }

    /// A handle of so many bytes ended, in this time after the one before it.
    pub(crate) fn record(&mut self, bytes: u64, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
        let drained = bytes.saturating_mul(DRAIN.as_micros() as u64) / micros;
        let before = if self.drained == 0 { drained } else { self.drained };
        self.drained = before - before / SMOOTHING + drained / SMOOTHING;
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (latency): calls and signals wait for the copies of many handles over a slow link.
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_first_handle_is_alone() {
        let flight = Flight::default();
        assert!(flight.may_begin(0) && !flight.may_begin(1));
    }

    proptest! {
        /// One handle more than ends in the time, at any rate.
        #[test]
        fn what_is_under_way_ends_in_the_time(mib in 1..64_u64, micros in 1..100_000_u64) {
            let mut flight = Flight::default();
            (0..40).for_each(|_| flight.record(mib * MIB, Duration::from_micros(micros)));
            let mut under_way = 0;
            while flight.may_begin(under_way) && under_way < 1 << 40 {
                under_way += mib * MIB;
            }
            let handles = under_way / (mib * MIB);
            let most = DRAIN.as_micros() as u64 / micros + 2;
            prop_assert!((1..=most).contains(&handles), "{handles} handles of {micros} us");
        }
    }

    #[test]
    fn a_link_that_becomes_slow_is_noticed() {
        let mut flight = Flight::default();
        flight.record(64 * MIB, Duration::from_millis(1));
        assert!(flight.may_begin(128 * MIB));
        (0..20).for_each(|_| flight.record(64 * MIB, Duration::from_millis(100)));
        assert!(!flight.may_begin(64 * MIB));
    }
}
