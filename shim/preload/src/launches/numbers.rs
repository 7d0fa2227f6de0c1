//! The numbers in a launch's arguments. Sizes of what the kernel works on are among them: its
//! elements, rows and columns.

use smallvec::SmallVec;

/// The largest numbers of a launch are kept, so many of them.
const MOST: usize = 12;

/// Larger numbers are no sizes: floating-point numbers from a ten-thousand-millionth on, halves of
/// addresses, masks.
const BOUND: u32 = 3 << 28;

/// The largest distinct numbers of a launch that may be sizes, in ascending order.
#[derive(Debug, Default)]
pub(super) struct LaunchNumbers(SmallVec<[u32; MOST]>);

impl LaunchNumbers {
    /// One more number of the arguments.
    #[inline]
    pub(super) fn note(&mut self, number: u32) {
        if !(2..BOUND).contains(&number) {
            return;
        }
        let is_full = self.0.len() == MOST;
        if is_full && number <= self.0[0] {
            return;
        }
        if let Err(place) = self.0.binary_search(&number) {
            self.0.insert(place, number);
            if is_full {
                self.0.remove(0);
            }
        }
    }

    pub(super) fn as_slice(&self) -> &[u32] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (silent degradation): small numbers, of which each launch has many, displace sizes.
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_largest_numbers_are_kept_once(all in proptest::collection::vec(prop_oneof![0..20_u32, any::<u32>()], 0..60)) {
            let mut numbers = LaunchNumbers::default();
            all.iter().for_each(|number| numbers.note(*number));
            let sizes: std::collections::BTreeSet<u32> = all.into_iter().filter(|number| (2..BOUND).contains(number)).collect();
            let skipped = sizes.len().saturating_sub(MOST);
            prop_assert_eq!(numbers.as_slice(), sizes.into_iter().skip(skipped).collect::<Vec<_>>());
        }
    }
}
