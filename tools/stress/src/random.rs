//! Random choices that a seed repeats: what a thread does next depends on its own numbers alone,
//! never on the others.

use fastrand::Rng;

/// What a thread draws.
#[derive(Debug)]
pub(crate) struct Random(Rng);

impl Random {
    /// The numbers of one of the threads that share a seed.
    pub(crate) fn new(seed: u64, thread: usize) -> Self {
        Self(Rng::with_seed(seed ^ (thread as u64 + 1).wrapping_mul(0xd1b5_4a32_d192_ed03)))
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0.usize(..limit)
    }

    /// True once in `times`.
    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// A size from 1 byte to `largest`, as likely from 1 to 2 bytes as from 1 to 2 MiB. Most are
    /// odd sizes, some whole pages, as programs ask for.
    pub(crate) fn size(&mut self, largest: u64) -> u64 {
        const PAGE: u64 = 2 << 20;
        let bytes = ((largest as f64).powf(self.0.f64()) as u64).clamp(1, largest);
        if bytes > PAGE && self.one_in(3) { bytes / PAGE * PAGE } else { bytes }
    }

    /// One of `rows`, each as often as its weight says.
    pub(crate) fn weighted<T: Copy>(&mut self, rows: &[(T, usize)]) -> T {
        let mut at = self.below(rows.iter().map(|(_, weight)| weight).sum());
        for (row, weight) in rows {
            if at < *weight {
                return *row;
            }
            at -= weight;
        }
        rows[0].0
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn a_seed_repeats_its_numbers_and_threads_differ() {
        let numbers = |seed, thread| {
            let mut random = Random::new(seed, thread);
            [(); 8].map(|()| random.below(1 << 30))
        };
        assert_eq!(numbers(1, 2), numbers(1, 2));
        assert_ne!(numbers(1, 2), numbers(1, 3));
        assert_ne!(numbers(1, 2), numbers(2, 2));
    }

    #[test]
    fn sizes_reach_from_a_byte_to_the_largest() {
        let mut random = Random::new(7, 0);
        let sizes: Vec<u64> = (0..10_000).map(|_| random.size(64 << 20)).collect();
        assert!(sizes.iter().all(|bytes| (1..=64 << 20).contains(bytes)));
        assert!(sizes.iter().any(|bytes| *bytes < 8) && sizes.iter().any(|bytes| *bytes > 32 << 20));
    }

    #[test]
    fn weights_are_kept() {
        let mut random = Random::new(7, 0);
        let rows = [('a', 1), ('b', 0), ('c', 9)];
        let drawn: Vec<char> = (0..1000).map(|_| random.weighted(&rows)).collect();
        let times = |wanted| drawn.iter().filter(|row| **row == wanted).count();
        assert!((50..200).contains(&times('a')) && times('b') == 0, "{} of 1000", times('a'));
    }
}
