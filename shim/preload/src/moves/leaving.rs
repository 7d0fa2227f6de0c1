//! The order in which blocks leave a device that has another limit. Pure.
//!
//! The blocks that launches have not used for longest leave first. Of those about which nothing is
//! known the larger ones do, because they need the fewest moves.

use std::cmp::Reverse;
use std::ops::Range;

/// A block with memory that may leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leaver {
    pub(super) range: Range<u64>,
    /// Bytes of it that would leave.
    pub(super) bytes: u64,
    /// The number of the last launch that is known to have used it.
    pub(super) last_use: Option<u64>,
}

/// Sorts blocks: those that leave first come first.
pub(super) fn sort(leavers: &mut [Leaver]) {
    leavers.sort_by_key(|leaver| (leaver.last_use, Reverse(leaver.bytes), leaver.range.start));
}

/// How many of the first blocks have so many bytes together. All of them, if these are fewer; at
/// least one, if there is one.
pub(super) fn count_for(leavers: &[Leaver], bytes: u64) -> usize {
    let mut sum: u64 = 0;
    let enough = leavers.iter().position(|leaver| {
        sum = sum.saturating_add(leaver.bytes);
        sum >= bytes
    });
    enough.map_or(leavers.len(), |last| last + 1)
}

#[cfg(test)]
mod tests {
    //! Hazard (thrashing): blocks leave that the next launch uses, beside others that none has used
    //! for long. Hazard (silent degradation): far more leaves than the limit asks for.
    use proptest::prelude::*;

    use super::*;

    fn leaver() -> impl Strategy<Value = Leaver> {
        let values = (0..1000_u64, 0..64_u64, proptest::option::of(0..20_u64));
        values.prop_map(|(at, bytes, last_use)| Leaver { range: at..at + 64, bytes, last_use })
    }

    proptest! {
        #[test]
        fn what_was_used_longest_ago_leaves_first_and_no_block_too_many(
            mut leavers in proptest::collection::vec(leaver(), 0..40),
            bytes in 0..2000_u64,
        ) {
            let sum = |some: &[Leaver]| some.iter().map(|leaver| leaver.bytes).sum::<u64>();
            let all = sum(&leavers);
            sort(&mut leavers);
            prop_assert!(leavers.is_sorted_by_key(|leaver| leaver.last_use));
            let count = count_for(&leavers, bytes);
            prop_assert!(sum(&leavers[..count]) >= bytes.min(all));
            if count > 1 {
                prop_assert!(sum(&leavers[..count - 1]) < bytes);
            }
            prop_assert_eq!(count == 0, leavers.is_empty());
            prop_assert_eq!(sum(&leavers), all);
        }
    }
}
