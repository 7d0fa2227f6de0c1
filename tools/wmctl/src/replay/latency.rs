//! How long calls took: a histogram with a relative error below 0.8 %, of fixed size, filled
//! without allocating.
//!
//! Values below 128 ns have a bucket each; every power of two above is cut into 128 buckets.

/// Bits of a value that are kept.
const BITS: u32 = 7;
const PER_OCTAVE: usize = 1 << BITS;
const BUCKETS: usize = PER_OCTAVE * (64 - BITS as usize + 1);

/// Durations in nanoseconds.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    sum: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], count: 0, sum: 0 }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, ns: u64) {
        self.buckets[bucket(ns)] += 1;
        self.count += 1;
        self.sum += ns;
    }

    pub(crate) fn join(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(own, more)| *own += more);
        self.count += other.count;
        self.sum += other.sum;
    }

    /// `None` without values.
    pub(crate) fn mean(&self) -> Option<u64> {
        self.sum.checked_div(self.count)
    }

    /// The value that `share` of all values do not exceed; `None` without values.
    pub(crate) fn quantile(&self, share: f64) -> Option<u64> {
        let rank = ((self.count as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let position = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        position.map(lowest)
    }
}

fn bucket(value: u64) -> usize {
    let octave = (u64::BITS - value.leading_zeros()).saturating_sub(BITS + 1);
    octave as usize * PER_OCTAVE + (value >> octave) as usize
}

/// The lowest value of a bucket.
fn lowest(bucket: usize) -> u64 {
    let octave = (bucket / PER_OCTAVE).saturating_sub(1);
    ((bucket - octave * PER_OCTAVE) as u64) << octave
}

#[cfg(test)]
mod tests {
    //! Hazard: a percentile that is off by a bucket's width makes a comparison of two allocators
    //! worthless.
    use super::*;

    #[test]
    fn a_bucket_is_within_a_hundredth_of_its_values() {
        for value in (0..300).chain([1_000, 12_345, 999_999, 1 << 40, u64::MAX]) {
            let low = lowest(bucket(value));
            assert!(low <= value && (value - low) as f64 <= value as f64 / 128.0, "{value}: {low}");
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn quantiles_of_known_values() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.quantile(0.5), histogram.mean()), (None, None));
        (1..=100).for_each(|value| histogram.add(value));
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| histogram.quantile(share)), [1, 50, 99, 100].map(Some));
        assert_eq!(histogram.mean(), Some(50));
    }

    #[test]
    fn joined_histograms_count_together() {
        let (mut one, mut other) = (Histogram::default(), Histogram::default());
        (0..3).for_each(|_| one.add(10));
        other.add(90);
        one.join(&other);
        assert_eq!((one.quantile(0.75), one.quantile(0.76)), (Some(10), Some(90)));
        assert_eq!(one.mean(), Some(30));
    }
}
