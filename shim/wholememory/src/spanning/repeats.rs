//! When a gather looks for row numbers that repeat, so that such a row crosses the network once.
//! Pure.
//!
//! The search costs the same whether it finds something or not, and how often numbers repeat is a
//! property of the program: so it is learnt, of each memory, from the searches before. Each rank
//! decides for itself, because its counts alone tell the others what crosses.

/// Fewest bytes of numbers and rows that are worth a search: less crosses in the time of its
/// launches.
const FEWEST_BYTES: u64 = 256 << 10;
/// A search is worth it if it keeps more than one row of so many from crossing.
const WORTH: u64 = 5;
/// Calls between two searches, at most, while these find nothing.
const LONGEST_PAUSE: u32 = 63;

/// The policy of one memory, at one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RepeatPolicy {
    /// Calls after a search that found too little.
    pause: u32,
    /// Those of them that are still to come.
    left: u32,
}

impl RepeatPolicy {
    /// Does the next gather search, whose numbers and rows are so many bytes?
    pub fn searches(&mut self, bytes: u64) -> bool {
        if bytes < FEWEST_BYTES {
            return false;
        }
        let searches = self.left == 0;
        self.left = self.left.saturating_sub(1);
        searches
    }

    /// A search found that of `numbers` numbers whose row is not the rank's island's `crossing` ask
    /// for one. Those that are no row's count as repeats: a program that fills up its numbers with
    /// them pays for searches that find nothing.
    pub fn learn(&mut self, numbers: u64, crossing: u64) {
        let saved = numbers.saturating_sub(crossing);
        let is_worth_it = saved.saturating_mul(WORTH) > numbers;
        self.pause = if is_worth_it { 0 } else { (2 * self.pause + 1).min(LONGEST_PAUSE) };
        self.left = self.pause;
    }
}

#[cfg(test)]
mod tests {
    //! Hazards: numbers that never repeat pay for searches; numbers that begin to repeat are never
    //! searched again.
    use proptest::prelude::*;

    use super::*;

    const MANY: u64 = 1 << 20;

    /// Which of some calls search, where each has `numbers` of which a number cross.
    fn searched(policy: &mut RepeatPolicy, calls: usize, (numbers, crossing): (u64, u64)) -> Vec<bool> {
        let call = |_| {
            let searches = policy.searches(MANY);
            if searches {
                policy.learn(numbers, crossing);
            }
            searches
        };
        (0..calls).map(call).collect()
    }

    #[test]
    fn pauses_double_up_to_every_64th_call() {
        let found = searched(&mut RepeatPolicy::default(), 1000, (100, 100));
        let at: Vec<_> = (0..1000).filter(|at| found[*at]).collect();
        assert_eq!(at[..8], [0, 2, 6, 14, 30, 62, 126, 190]);
        assert!(at[7..].windows(2).all(|pair| pair[1] - pair[0] == 64));
    }

    #[test]
    fn a_fifth_is_too_little() {
        for (crossing, goes_on) in [(80, false), (79, true), (100, false), (1, true)] {
            let found = searched(&mut RepeatPolicy::default(), 2, (100, crossing));
            assert_eq!(found, [true, goes_on], "{crossing} of 100");
        }
    }

    #[test]
    fn a_call_without_rows_of_other_islands_found_nothing() {
        assert_eq!(searched(&mut RepeatPolicy::default(), 2, (0, 0)), [true, false]);
    }

    proptest! {
        #[test]
        fn small_calls_neither_search_nor_shorten_a_pause(
            sizes in prop::collection::vec(0_u64..2 * FEWEST_BYTES, 1..100),
        ) {
            let (mut policy, mut large_alone) = (RepeatPolicy::default(), RepeatPolicy::default());
            for bytes in sizes {
                let searches = policy.searches(bytes);
                if bytes < FEWEST_BYTES {
                    prop_assert!(!searches);
                    continue;
                }
                prop_assert_eq!(searches, large_alone.searches(bytes));
                if searches {
                    policy.learn(10, 10);
                    large_alone.learn(10, 10);
                }
            }
        }

        #[test]
        fn repeats_are_found_within_64_calls_and_then_in_each(
            before in prop::collection::vec((1_u64..1000, 0_u64..1000), 0..300),
        ) {
            let mut policy = RepeatPolicy::default();
            for (numbers, crossing) in before {
                searched(&mut policy, 1, (numbers, crossing.min(numbers)));
            }
            let found = searched(&mut policy, 200, (100, 20));
            let first = found.iter().position(|searches| *searches);
            prop_assert!(first.is_some_and(|first| first < 64));
            prop_assert!(found[first.unwrap_or_default()..].iter().all(|searches| *searches));
        }

        #[test]
        fn numbers_without_repeats_are_searched_seldom(calls in 1_usize..2000) {
            let found = searched(&mut RepeatPolicy::default(), calls, (100, 100));
            let searches = found.iter().filter(|searches| **searches).count();
            prop_assert!(searches <= 6 + calls / 64, "{} of {}", searches, calls);
        }
    }
}
