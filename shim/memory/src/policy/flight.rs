//! How many bytes of handles move at a time. More of them use the link better, but calls that wait
//! for the end of a migration, and the signals of its thread, wait for all that is under way.

use std::time::Duration;

/// The time in which the handles under way are to end.
const DRAIN: Duration = Duration::from_millis(3);

/// Each measurement takes one part in so many off what was summed before it.
const SMOOTHING: u64 = 8;

/// The measured rates of moves.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    all: MeasuredRate,
    /// Of handles of which most was copied.
    copied: MeasuredRate,
}

/// Bytes over time, of the last handles. Both are summed, for handles end in bursts: where the
/// mover waits for the oldest, or has no processor, those behind it have ended too, and come
/// microseconds after it.
#[derive(Debug, Default)]
struct MeasuredRate {
    bytes: u64,
    nanos: u64,
}

impl Flight {
    /// May another handle begin while so many bytes are under way? One at a time is always allowed.
    pub(crate) fn may_begin(&self, under_way: u64) -> bool {
        under_way == 0 || self.all.time_of(under_way).is_some_and(|time| time < DRAIN)
    }

    /// A handle of so many bytes ended, in this time after the one before it.
    pub(crate) fn record(&mut self, bytes: u64, took: Duration) {
        self.all.add(bytes, took);
    }

    /// So many bytes of a handle of `bytes` were copied, in this time.
    pub(crate) fn record_copy(&mut self, bytes: u64, copied: u64, took: Duration) {
        if 2 * copied >= bytes {
            self.copied.add(copied, took);
        }
    }

    /// The time in which so many bytes are copied; `None`: not measured yet. Both ways count, and
    /// they are copied at the same time, so it is rather less than one way takes.
    pub(crate) fn copying(&self, bytes: u64) -> Option<Duration> {
        self.copied.time_of(bytes)
    }
}

impl MeasuredRate {
    fn add(&mut self, bytes: u64, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        let smoothed = |before: u64, now: u64| (before - before / SMOOTHING).saturating_add(now);
        (self.bytes, self.nanos) = (smoothed(self.bytes, bytes), smoothed(self.nanos, nanos));
    }

    fn time_of(&self, bytes: u64) -> Option<Duration> {
        let nanos = (u128::from(bytes) * u128::from(self.nanos)).checked_div(self.bytes.into())?;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
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

        /// Hazard (silent degradation): what is clean is copied for ever, since the link seems to
        /// be faster than the fingerprints that find it clean.
        #[test]
        fn handles_that_end_in_a_burst_are_no_faster_than_one_by_one(
            mib in 1..64_u64,
            micros in 100..10_000_u64,
            bursts in prop::collection::vec(1..6_u32, 8..40),
        ) {
            let mut flight = Flight::default();
            for burst in bursts {
                flight.record_copy(mib * MIB, mib * MIB, Duration::from_micros(micros) * burst);
                (1..burst).for_each(|_| flight.record_copy(mib * MIB, mib * MIB, Duration::from_micros(1)));
            }
            let took = flight.copying(mib * MIB).expect("a measurement");
            let ratio = took.as_secs_f64() / Duration::from_micros(micros).as_secs_f64();
            prop_assert!((0.6..1.7).contains(&ratio), "{ratio} of its time");
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
