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
    /// The same of handles of which most was copied.
    copied: u64,
}

impl Flight {
    /// May another handle begin while so many bytes are under way? One at a time is always allowed.
    pub(crate) fn may_begin(&self, under_way: u64) -> bool {
        under_way == 0 || under_way < self.drained
    }

    /// A handle of so many bytes ended, in this time after the one before it.
    pub(crate) fn record(&mut self, bytes: u64, took: Duration) {
        self.drained = smoothed(self.drained, bytes, took);
    }

    /// So many bytes of a handle of `bytes` were copied, in this time.
    pub(crate) fn record_copy(&mut self, bytes: u64, copied: u64, took: Duration) {
        if 2 * copied >= bytes {
            self.copied = smoothed(self.copied, copied, took);
        }
    }

    /// The time in which so many bytes are copied; `None`: not measured yet. Both ways count, and
    /// they are copied at the same time, so it is rather less than one way takes.
    pub(crate) fn copying(&self, bytes: u64) -> Option<Duration> {
        let nanos = u128::from(bytes) * DRAIN.as_nanos();
        let nanos = nanos.checked_div(self.copied.into())?;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

/// Bytes that end within [`DRAIN`], where so many took this time.
fn smoothed(before: u64, bytes: u64, took: Duration) -> u64 {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
    let drained = bytes.saturating_mul(DRAIN.as_micros() as u64) / micros;
    let before = if before == 0 { drained } else { before };
    before - before / SMOOTHING + drained / SMOOTHING
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

    proptest! {
        /// Handles that were mostly clean end faster, and say nothing of copies.
        #[test]
        fn the_time_of_copies_is_that_of_what_was_copied(
            mib in 1..64_u64,
            micros in 1..100_000_u64,
            clean in prop::collection::vec(1..1000_u64, 0..20),
        ) {
            let mut flight = Flight::default();
            prop_assert_eq!(flight.copying(MIB), None);
            for _ in 0..40 {
                flight.record_copy(mib * MIB, mib * MIB, Duration::from_micros(micros));
                clean.iter().for_each(|took| flight.record_copy(64 * MIB, 31 * MIB, Duration::from_micros(*took)));
            }
            let took = flight.copying(mib * MIB).expect("a measurement").as_nanos() as f64 / 1e3;
            prop_assert!((took / micros as f64 - 1.0).abs() < 0.01, "{took} us of {micros}");
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
