//! Draws from a seeded generator: the same seed draws the same program.

pub use fastrand::Rng as Random;

/// The draws that the programs share, beside the generator's own.
pub trait Choices {
    /// A number below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize;

    /// True once in `times`.
    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of these, if there is any.
    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T>;

    /// One of `rows`, each as often as its weight says.
    fn weighted<T: Copy>(&mut self, rows: &[(T, usize)]) -> T {
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

impl Choices for Random {
    fn below(&mut self, limit: usize) -> usize {
        self.usize(..limit)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        self.choice(from).copied()
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (vacuous test): a choice that is made too often, or never.
    use super::{Choices, Random};

    #[test]
    fn weights_are_kept() {
        let mut random = Random::with_seed(7);
        let rows = [('a', 1), ('b', 0), ('c', 9)];
        let drawn: Vec<char> = (0..1000).map(|_| random.weighted(&rows)).collect();
        let times = |wanted| drawn.iter().filter(|row| **row == wanted).count();
        assert!((50..200).contains(&times('a')) && times('b') == 0, "{} of 1000", times('a'));
    }
}
