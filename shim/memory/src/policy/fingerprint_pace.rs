//! How many fingerprints are taken in one call, and whether any are. They are taken behind the
//! closed gate, so a call must be short, and together they must cost less than the copies that they
//! may save.

use std::time::{Duration, Instant};

use wm_driver::gpu::FINGERPRINTED_BYTES;

/// A full call that takes less than this is followed by one of twice the bytes.
const SHORT: Duration = Duration::from_micros(250);

/// A call that takes longer is followed by one of half the bytes. Calls are judged together until
/// their times add up to this: one launch costs some microseconds whatever it reads.
pub(crate) const LONG: Duration = Duration::from_millis(1);

/// The most bytes of a call: 2 GiB.
const MOST: u64 = 1024 * FINGERPRINTED_BYTES;

/// Fingerprints pay if the link would take so many times as long for the same bytes.
const GAIN: u32 = 4;

/// The pause after calls that did not pay. It doubles with each such judgement, up to the longest,
/// and is halved by each of the other kind.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The pace of a device's fingerprints.
#[derive(Debug)]
pub(crate) struct FingerprintPace {
    batch: u64,
    /// Calls that are not judged yet: their time, and the time of the link for their bytes.
    took: Duration,
    carried: Duration,
    pause: Duration,
    until: Option<Instant>,
    spent: Duration,
}

impl Default for FingerprintPace {
    fn default() -> Self {
        Self {
            batch: FINGERPRINTED_BYTES,
            took: Duration::ZERO,
            carried: Duration::ZERO,
            pause: PAUSE,
            until: None,
            spent: Duration::ZERO,
        }
    }
}

impl FingerprintPace {
    /// The most bytes of the next call: at least one chunk.
    pub(crate) fn batch(&self) -> u64 {
        self.batch
    }

    /// May fingerprints be taken now, as far as is known?
    pub(crate) fn pays(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// The time of all calls so far.
    pub(crate) fn spent(&self) -> Duration {
        self.spent
    }

    /// A call ended. `read`: the bytes that it took fingerprints of; 0 if it failed. `carried`: the
    /// time in which the link carries them, if it was measured.
    pub(crate) fn record(&mut self, read: u64, took: Duration, carried: Option<Duration>, now: Instant) {
        self.spent += took;
        // A launch costs the same for one chunk as for a hundred, so a call that is followed by a
        // larger one tells nothing about those.
        let grows = took < SHORT && read >= self.batch && self.batch < MOST;
        if took > LONG {
            self.batch = (self.batch / 2 / FINGERPRINTED_BYTES).max(1) * FINGERPRINTED_BYTES;
        } else if grows {
            self.batch = (2 * self.batch).min(MOST);
        }
        let Some(carried) = carried.filter(|_| !grows) else { return };
        self.took += took;
        self.carried += carried;
        if self.took >= LONG {
            self.judge(now);
        }
    }

    fn judge(&mut self, now: Instant) {
        let pays = self.took.saturating_mul(GAIN) <= self.carried;
        (self.took, self.carried) = (Duration::ZERO, Duration::ZERO);
        if pays {
            self.pause = (self.pause / 2).max(PAUSE);
        } else {
            self.batch = FINGERPRINTED_BYTES;
            self.until = Some(now + self.pause);
            self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (latency): fingerprints keep the gate closed for longer than the copies would, or a
    //! single call does for long.
    use proptest::prelude::*;

    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    /// A GPU, a link and a program that moves.
    #[derive(Debug, Clone, Copy)]
    struct Machine {
        /// Of each call.
        overhead: Duration,
        /// For a chunk.
        reads: Duration,
        carries: Duration,
        /// Bytes that fingerprints are asked for at a time.
        asked: u64,
        /// Between two times that they are asked for.
        between: Duration,
    }

    #[derive(Debug, Default)]
    struct Run {
        calls: Vec<(u64, Duration)>,
        refused: u32,
    }

    impl Machine {
        fn call(&self, bytes: u64) -> Duration {
            self.overhead + self.reads * (bytes / FINGERPRINTED_BYTES) as u32
        }

        fn carried(&self, bytes: u64) -> Duration {
            self.carries * (bytes / FINGERPRINTED_BYTES) as u32
        }

        fn run(&self, asks: u32) -> Run {
            let (mut pace, mut run, mut now) = (FingerprintPace::default(), Run::default(), Instant::now());
            for _ in 0..asks {
                let mut left = self.asked;
                while left > 0 && pace.pays(now) {
                    let bytes = left.min(pace.batch());
                    let took = self.call(bytes);
                    now += took;
                    pace.record(bytes, took, Some(self.carried(bytes)), now);
                    run.calls.push((bytes, took));
                    left -= bytes;
                }
                run.refused += u32::from(left > 0);
                now += self.between;
            }
            run
        }
    }

    fn machine(
        reads: impl Strategy<Value = u64>,
        carries: impl Strategy<Value = u64>,
    ) -> impl Strategy<Value = Machine> {
        let micros = |from: u64, to: u64| (from..to).prop_map(|count| MICROSECOND * count as u32);
        let nanos = |nanos: u64| Duration::from_nanos(nanos);
        (micros(0, 60), reads.prop_map(nanos), carries.prop_map(nanos), 1..2048_u64, micros(0, 20_000))
            .prop_map(|(overhead, reads, carries, chunks, between)| Machine {
                overhead,
                reads,
                carries,
                asked: chunks * FINGERPRINTED_BYTES,
                between,
            })
    }

    proptest! {
        /// Twice what a short call may take is below the bound; a single chunk cannot be divided.
        #[test]
        fn a_call_is_one_chunk_or_takes_less_than_a_millisecond(
            machine in machine(200..5_000_000_u64, 100..5_000_000_u64),
        ) {
            for (bytes, took) in machine.run(300).calls {
                prop_assert!(bytes <= MOST && bytes % FINGERPRINTED_BYTES == 0);
                prop_assert!(bytes == FINGERPRINTED_BYTES || took < LONG, "{took:?} for {bytes}");
            }
        }

        /// Each pause is twice as long as the one before it: all calls of a run in which nothing
        /// pays take as long as those of one judgement, for each doubling that the run has time
        /// for.
        #[test]
        fn what_does_not_pay_is_tried_at_doubling_distances(
            machine in machine(200..2_000_000_u64, 100..200_u64),
        ) {
            let machine = Machine { carries: machine.carries.min(3 * machine.reads), ..machine };
            let asks = 2000;
            let run = machine.run(asks);
            let took: Duration = run.calls.iter().map(|(_, took)| *took).sum();
            let time = machine.between * asks + took;
            let pauses = (1..).take_while(|count| PAUSE * ((1 << count) - 1) < time).count() as u32 + 1;
            // The batch grows at most ten times before each judgement.
            let judgement = LONG + machine.call(FINGERPRINTED_BYTES).max(2 * SHORT) + 10 * SHORT;
            prop_assert!(took <= judgement * (pauses + 1), "{took:?} in {time:?}");
        }

        /// An H100's figures and their surroundings: 130 us a call, 0.43 us a chunk, and 38 us over
        /// the link.
        #[test]
        fn what_pays_is_never_left_out(
            machine in machine(200..600_u64, 20_000..200_000_u64),
            overhead in 0..200_u32,
            chunks in 256..2048_u64,
        ) {
            let overhead = MICROSECOND * overhead;
            let machine = Machine { asked: chunks * FINGERPRINTED_BYTES, overhead, ..machine };
            prop_assert_eq!(machine.run(300).refused, 0);
        }

        /// Whatever was measured, and in whichever order.
        #[test]
        fn the_pause_ends(calls in prop::collection::vec((0..MOST, 0..50_000_u64, 0..50_000_u64), 1..100)) {
            let (mut pace, now) = (FingerprintPace::default(), Instant::now());
            let mut spent = Duration::ZERO;
            for (bytes, took, carried) in calls {
                let took = Duration::from_micros(took);
                pace.record(bytes, took, Some(Duration::from_micros(carried)), now);
                spent += took;
                prop_assert!(pace.pays(now + LONGEST_PAUSE));
                prop_assert!((FINGERPRINTED_BYTES..=MOST).contains(&pace.batch()));
                prop_assert!(pace.batch() % FINGERPRINTED_BYTES == 0);
            }
            prop_assert_eq!(pace.spent(), spent);
        }
    }

    #[test]
    fn a_device_that_becomes_fast_is_noticed() {
        let (mut pace, now) = (FingerprintPace::default(), Instant::now());
        let chunk = |pace: &mut FingerprintPace, micros, at| {
            pace.record(FINGERPRINTED_BYTES, MICROSECOND * micros, Some(MICROSECOND * 1000), at);
        };
        chunk(&mut pace, 2000, now);
        assert!(!pace.pays(now) && !pace.pays(now + PAUSE - MICROSECOND));
        assert!(pace.pays(now + PAUSE), "it is tried again");
        (0..100).for_each(|_| chunk(&mut pace, 100, now + PAUSE));
        assert!(pace.pays(now + PAUSE));
    }

    /// Before the link was measured nothing is judged.
    #[test]
    fn where_the_link_is_unknown_fingerprints_are_taken() {
        let (mut pace, now) = (FingerprintPace::default(), Instant::now());
        (0..100).for_each(|_| pace.record(FINGERPRINTED_BYTES, 10 * LONG, None, now));
        assert!(pace.pays(now));
        assert_eq!(pace.batch(), FINGERPRINTED_BYTES);
    }
}
