//! Random choices that a seed repeats.

/// A generator of well-mixed numbers (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// The numbers of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0xd1b5_4a32_d192_ed03));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// True once in `times`.
    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of these, if there is any.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.below(from.len())]) }
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
    //! Hazard: a seed that does not repeat its program, so that what was found cannot be found again.
    use super::Random;

    #[test]
    fn a_seed_repeats_its_numbers() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [(); 8].map(|()| random.next())
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
    }

    #[test]
    fn weights_are_kept() {
        let mut random = Random::new(7);
        let rows = [('a', 1), ('b', 0), ('c', 9)];
        let drawn: Vec<char> = (0..1000).map(|_| random.weighted(&rows)).collect();
        let times = |wanted| drawn.iter().filter(|row| **row == wanted).count();
        assert!((50..200).contains(&times('a')) && times('b') == 0, "{} of 1000", times('a'));
    }
}
