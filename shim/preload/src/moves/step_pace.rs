//! The pace of steps: how long calls wait until the GPU is idle, and how much moves after that.
//!
//! Each batch waits for the GPU, whatever it moves. So batches grow, as long as they end in the
//! time of a step. A step is short, and a client asks for many: what one has found out holds for
//! the next. A plain value: times are told.

use std::time::{Duration, Instant};

/// How long the gate is closed at first until the GPU has no work left. Each time that this is not
/// enough, the next time is twice as long.
const FIRST_DRAIN: Duration = Duration::from_millis(20);
const LONGEST_DRAIN: Duration = Duration::from_millis(160);

/// Bytes that are chosen at a time. What they leave goes to the driver before more is chosen.
const LEAST: u64 = 512 << 20;
const MOST: u64 = 4 << 30;

/// A batch that takes longer is followed by a smaller one.
const SOON: Duration = Duration::from_millis(300);

/// A step that begins later than that after another one begins anew.
const KNOWN: Duration = Duration::from_secs(10);

/// See above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StepPace {
    drain: Duration,
    batch: u64,
    /// The end of the last step.
    end: Option<Instant>,
}

impl StepPace {
    pub(super) const NEW: Self = Self { drain: FIRST_DRAIN, batch: LEAST, end: None };

    /// That of a step that begins now.
    pub(super) fn begin(self, now: Instant) -> Self {
        let is_known = self.end.is_some_and(|end| now.saturating_duration_since(end) < KNOWN);
        if is_known { self } else { Self::NEW }
    }

    /// The step has ended.
    pub(super) fn end(self, now: Instant) -> Self {
        Self { end: Some(now), ..self }
    }

    /// How long the gate is closed until the GPU has no work left.
    pub(super) fn drain(self) -> Duration {
        self.drain
    }

    /// That was not enough.
    pub(super) fn was_busy(&mut self) {
        self.drain = (2 * self.drain).min(LONGEST_DRAIN);
    }

    /// Bytes of the next batch.
    pub(super) fn batch(self) -> u64 {
        self.batch
    }

    /// A batch has ended, after this time.
    pub(super) fn moved(&mut self, has_moved_all: bool, took: Duration) {
        let is_soon = has_moved_all && took < SOON;
        self.batch = if is_soon { 2 * self.batch } else { self.batch / 2 }.clamp(LEAST, MOST);
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (latency): each half GiB waits for the GPU to become idle, and so does a request of
    //! an operator; a request for a step is answered long after its time; each step finds out anew
    //! how long the GPU has work.
    use super::*;

    #[test]
    fn batches_grow_to_what_moves_in_the_time_of_a_step() {
        for (wait, gib_each_s, most) in [(30, 50, 4 << 30), (100, 10, 1 << 30), (400, 50, 512 << 20)] {
            let (mut pace, mut sizes) = (StepPace::NEW, Vec::new());
            for _ in 0..40 {
                sizes.push(pace.batch());
                let moving = pace.batch() * 1000 / (gib_each_s << 30);
                pace.moved(true, Duration::from_millis(wait + moving));
            }
            assert!(sizes[8..].iter().all(|size| *size <= 2 * most && *size >= most / 2), "{sizes:?}");
            assert!(sizes[8..].contains(&most), "{sizes:?}");
            pace.moved(false, Duration::ZERO);
            assert!(pace.batch() <= most);
        }
    }

    #[test]
    fn a_step_knows_what_the_one_before_it_has_found_out() {
        let (start, mut pace) = (Instant::now(), StepPace::NEW);
        (0..2).for_each(|_| pace.was_busy());
        pace.moved(true, Duration::ZERO);
        let pace = pace.end(start);
        let next = pace.begin(start + KNOWN / 2);
        assert_eq!((next.drain(), next.batch()), (4 * FIRST_DRAIN, 2 * LEAST));
        assert_eq!(pace.begin(start + KNOWN), StepPace::NEW);
        let mut longest = pace;
        (0..9).for_each(|_| longest.was_busy());
        assert_eq!(longest.drain(), LONGEST_DRAIN);
    }
}
