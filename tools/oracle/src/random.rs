//! Random choices that a seed repeats.

use fastrand::Rng;

/// What a seed draws.
#[derive(Debug, Clone)]
pub(crate) struct Random(Rng);

impl Random {
    /// The numbers of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0.usize(..limit)
    }

    /// True once in `times`.
    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of these, if there is any.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        self.0.choice(from).copied()
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
    //! Hazard: a choice that is made too often, or never.
    use super::Random;

    #[test]
    fn weights_are_kept() {
        let mut random = Random::new(7);
        let rows = [('a', 1), ('b', 0), ('c', 9)];
        let drawn: Vec<char> = (0..1000).map(|_| random.weighted(&rows)).collect();
        let times = |wanted| drawn.iter().filter(|row| **row == wanted).count();
        assert!((50..200).contains(&times('a')) && times('b') == 0, "{} of 1000", times('a'));
    }
}
