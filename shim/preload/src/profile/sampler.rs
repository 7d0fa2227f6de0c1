//! Which allocations are sampled. Pure.
//!
//! Samples are the points of a Poisson process over the bytes that a thread allocates: the gaps
//! between them are drawn from an exponential distribution, so no pattern of sizes can hide from
//! them. An allocation is sampled if at least one point lies in it, and then stands for its size
//! over the probability of that. So sums over samples have no bias, whatever the sizes are.

use fastrand::Rng;

/// The sampler of one thread.
#[derive(Debug, Clone)]
pub(super) struct Sampler {
    random: Rng,
    /// Bytes up to the next point.
    left: f64,
}

impl Sampler {
    pub(super) fn new(mut random: Rng, interval: u64) -> Self {
        let left = gap(&mut random, interval);
        Self { random, left }
    }

    /// The bytes that an allocation stands for, if it is sampled. `interval`: bytes from one point
    /// to the next, in the mean.
    pub(super) fn sample(&mut self, bytes: u64, interval: u64) -> Option<u64> {
        self.left -= bytes as f64;
        if self.left > 0.0 {
            return None;
        }
        // The process has no memory: the gap behind the allocation is drawn anew, however many
        // points lay in it.
        self.left = gap(&mut self.random, interval);
        Some(weight(bytes, interval))
    }
}

/// Bytes up to the next point. The draw is never 0, which has no finite logarithm.
fn gap(random: &mut Rng, interval: u64) -> f64 {
    -(1.0 - random.f64()).ln() * interval as f64
}

/// The size over the probability that a point lies in it.
fn weight(bytes: u64, interval: u64) -> u64 {
    let probability = -(-(bytes as f64) / interval as f64).exp_m1();
    (bytes as f64 / probability).round() as u64
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong report): a profile that favours large allocations, or small ones.
    use fastrand::Rng;
    use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};

    use super::{Sampler, weight};

    const INTERVAL: u64 = 1 << 20;

    #[test]
    fn what_is_many_times_the_interval_is_always_sampled_and_stands_for_itself() {
        let mut sampler = Sampler::new(Rng::with_seed(7), INTERVAL);
        for _ in 0..1000 {
            assert_eq!(sampler.sample(64 * INTERVAL, INTERVAL), Some(64 * INTERVAL));
        }
    }

    #[test]
    fn what_is_small_stands_for_an_interval() {
        assert_eq!(weight(1, INTERVAL), INTERVAL + 1);
        assert!((INTERVAL..INTERVAL + INTERVAL / 100).contains(&weight(512, INTERVAL)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        /// The standard deviation of the sum over `n` bytes is at most the square root of
        /// `n * interval`, for sizes below the interval. Five of them are met once in millions.
        #[test]
        fn sums_over_samples_are_those_of_all(
            seed in any::<u64>(), sizes in proptest::collection::vec(1u64..4 * INTERVAL, 1..8),
        ) {
            let mut sampler = Sampler::new(Rng::with_seed(seed), INTERVAL);
            let (mut truth, mut estimates) = (vec![0u64; sizes.len()], vec![0u64; sizes.len()]);
            let rounds = 20_000 / sizes.len();
            for _ in 0..rounds {
                for (index, bytes) in sizes.iter().enumerate() {
                    truth[index] += bytes;
                    estimates[index] += sampler.sample(*bytes, INTERVAL).unwrap_or(0);
                }
            }
            for (truth, estimate) in truth.into_iter().zip(estimates) {
                let deviation = (truth as f64 * INTERVAL as f64).sqrt();
                let error = (estimate as f64 - truth as f64).abs();
                // A sum below some intervals has few samples, and no normal distribution.
                prop_assert!(error <= 5.0 * deviation + 8.0 * INTERVAL as f64, "{estimate} for {truth}");
            }
        }

        #[test]
        fn a_sample_stands_for_its_size_at_least(bytes in 1u64..1 << 45, interval in 1u64..1 << 40) {
            prop_assert!(weight(bytes, interval) >= bytes - bytes / (1 << 50));
        }
    }
}
