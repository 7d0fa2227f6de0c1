//! How long PyTorch's cache is left alone after it was emptied and did not suffice.
//!
//! A cache that is emptied each time costs little, and what tensors have freed does not keep the
//! device from others that live. A cache that is left alone spares the program the new memory,
//! which lies elsewhere in each step and was used by nothing yet. So it is left alone for longer
//! and longer, as long as the program then holds no more memory than with a cache that is emptied
//! each time.

use std::time::Duration;

/// The shortest span, in which pieces of one request belong together: pinning host memory takes
/// time.
pub(super) const SHORTEST: Duration = Duration::from_secs(1);

/// The longest one, and how much longer the next one is.
const LONGEST: Duration = Duration::from_secs(64);
const LONGER: u32 = 4;

/// Spans of the shortest length before a longer one is tried. There are four times as many after
/// each trial that failed, up to so many: a trial makes memory of the host, which takes long.
const FEW: u32 = 16;
const MANY: u32 = 256;

/// As many of the last of them tell how much the program holds.
const TOLD: usize = 4;

/// A longer span fails once the program holds more by one part in so many.
const MORE: u64 = 32;

/// The span of a thread that PyTorch's requests come from.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheSpan {
    length: Duration,
    /// The most bytes that the program has held at a shortage since the cache was emptied last.
    peak: u64,
    /// The present span was to be a longer one, and failed.
    has_failed: bool,
    /// The most bytes in each of the last spans of the shortest length.
    usual: [u64; TOLD],
    /// Spans of that length to come, and how many there are after the next failure.
    to_come: u32,
    after_failure: u32,
}

impl CacheSpan {
    pub(super) const NEW: Self = Self {
        length: SHORTEST,
        peak: 0,
        has_failed: false,
        usual: [0; TOLD],
        to_come: FEW,
        after_failure: LONGER * FEW,
    };

    /// The time for which the cache is left alone now.
    pub(super) fn length(&self) -> Duration {
        self.length
    }

    /// Shortages so far apart do not belong together.
    pub(super) fn apart(&self) -> Duration {
        self.length.saturating_mul(LONGER)
    }

    /// The program is short of memory, and holds so many bytes.
    pub(super) fn note(&mut self, held: u64) {
        self.peak = self.peak.max(held);
        if self.length > SHORTEST && self.holds_more() {
            (self.length, self.to_come, self.has_failed) = (SHORTEST, self.after_failure, true);
            self.after_failure = self.after_failure.saturating_mul(LONGER).min(MANY);
        }
    }

    fn holds_more(&self) -> bool {
        let usual = self.usual.into_iter().max().unwrap_or(0);
        self.peak > usual.saturating_add(usual / MORE)
    }

    /// An emptied cache did not suffice. `is_again`: so it was a short while ago, and a span has
    /// ended.
    pub(super) fn has_ended(&mut self, is_again: bool) {
        let peak = std::mem::take(&mut self.peak);
        if !is_again {
            *self = Self::NEW;
        } else if self.length > SHORTEST {
            // The program has held no more.
            self.length = self.length.saturating_mul(LONGER).min(LONGEST);
        } else if !std::mem::take(&mut self.has_failed) {
            self.usual.rotate_left(1);
            self.usual[TOLD - 1] = peak;
            self.to_come = self.to_come.saturating_sub(1);
            if self.to_come == 0 {
                self.length = SHORTEST * LONGER;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (latency): in each step PyTorch gives up its cache and makes it again; or what its
    //! tensors have freed has the device, and what lives lies on the host.
    use super::*;

    /// The lengths of spans in seconds, of a program that holds so many GiB after a cache that was
    /// emptied, and in a span of so many seconds.
    fn lengths(count: usize, held: impl Fn(u64) -> u64) -> Vec<u64> {
        let mut span = CacheSpan::NEW;
        let next = |_| {
            let length = span.length().as_secs();
            span.note(held(length));
            span.has_ended(true);
            length
        };
        (0..count).map(next).collect()
    }

    #[test]
    fn a_cache_that_is_made_again_as_it_was_is_left_alone_for_longer_each_time() {
        assert_eq!(lengths(21, |_| 16), [[1; 16].as_slice(), &[4, 16, 64, 64, 64]].concat());
        assert_eq!(lengths(18, |length| 64 + length / 4)[16..], [4, 16], "a little more");
    }

    #[test]
    fn a_cache_that_grows_when_left_alone_is_emptied_each_time_but_for_ever_rarer_trials() {
        let spans = lengths(2000, |length| if length > 1 { 88 } else { 65 });
        let trials: Vec<usize> = (0..spans.len()).filter(|at| spans[*at] > 1).collect();
        let apart: Vec<usize> = trials.windows(2).map(|two| two[1] - two[0] - 1).collect();
        assert_eq!((trials[0], &apart[..2]), (16, &[64, 256][..]), "{trials:?}");
        assert!(apart[2..].iter().all(|spans| *spans == 256) && spans.iter().all(|length| *length <= 4));
    }

    /// Hazard (out of memory): the host's memory is pinned for all of a cache that grows.
    #[test]
    fn a_longer_span_ends_as_soon_as_the_program_holds_more() {
        let mut span = CacheSpan::NEW;
        for _ in 0..16 {
            span.note(64);
            span.has_ended(true);
        }
        span.note(66);
        assert_eq!(span.length(), 4 * SHORTEST);
        span.note(67);
        assert_eq!(span.length(), SHORTEST);
        // What it held then is not what it usually holds.
        (0..64).for_each(|_| {
            span.note(if span.has_failed { 90 } else { 64 });
            span.has_ended(true);
        });
        assert_eq!(span.length(), SHORTEST);
        span.has_ended(true);
        assert_eq!(span.length(), 4 * SHORTEST);
        span.note(67);
        assert_eq!(span.length(), SHORTEST);
    }

    /// The first steps of a program hold more than the later ones, or less.
    #[test]
    fn the_last_short_spans_tell_how_much_a_program_holds() {
        for first in [40, 90] {
            let mut span = CacheSpan::NEW;
            for held in [[first; 12].as_slice(), &[65, 66, 65, 60, 88]].concat() {
                span.note(held);
                span.note(held / 2);
                span.has_ended(true);
            }
            assert_eq!(span.length(), SHORTEST, "88 is more than 66 by a third");
        }
    }

    #[test]
    fn after_a_while_without_a_shortage_it_begins_anew() {
        let mut span = CacheSpan::NEW;
        for _ in 0..17 {
            span.has_ended(true);
        }
        assert_eq!(span.length(), 16 * SHORTEST);
        span.has_ended(false);
        assert_eq!(span.length(), SHORTEST);
    }
}
