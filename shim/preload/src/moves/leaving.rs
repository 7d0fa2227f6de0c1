//! The order in which blocks leave a device that has another limit. Pure.
//!
//! The blocks that launches have not used for longest leave first. Of those about which nothing is
//! known the larger ones do, because they need the fewest moves.

use std::cmp::Reverse;
use std::ops::Range;
use std::time::Duration;

/// A block with memory that may leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leaver {
    pub(super) range: Range<u64>,
    /// Bytes of it that would leave.
    pub(super) bytes: u64,
    /// The number of the last launch that is known to have used it.
    pub(super) last_use: Option<u64>,
}

/// How much is chosen at a time. What it leaves goes to the driver before more is chosen.
///
/// Each batch waits for the GPU to become idle, whatever it moves. So batches grow, as long as they
/// end in the time of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchSize(u64);

impl BatchSize {
    const LEAST: u64 = 512 << 20;
    const MOST: u64 = 4 << 30;
    const SOON: Duration = Duration::from_millis(300);

    pub(super) const FIRST: Self = Self(Self::LEAST);

    pub(super) fn bytes(self) -> u64 {
        self.0
    }

    /// A batch has ended, after this time.
    pub(super) fn ended(&mut self, has_moved_all: bool, took: Duration) {
        let is_soon = has_moved_all && took < Self::SOON;
        self.0 = if is_soon { 2 * self.0 } else { self.0 / 2 }.clamp(Self::LEAST, Self::MOST);
    }
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

    /// Hazard (latency): each half GiB waits for the GPU to become idle, and so does a request of
    /// an operator. Hazard (latency): a request for a step is answered long after its time.
    #[test]
    fn batches_grow_to_what_moves_in_the_time_of_a_step() {
        for (wait, gib_each_s, most) in [(30, 50, 4 << 30), (100, 10, 1 << 30), (400, 50, 512 << 20)] {
            let (mut size, mut sizes) = (BatchSize::FIRST, Vec::new());
            for _ in 0..40 {
                sizes.push(size.bytes());
                let moving = size.bytes() * 1000 / (gib_each_s << 30);
                size.ended(true, Duration::from_millis(wait + moving));
            }
            assert!(sizes[8..].iter().all(|size| *size <= 2 * most && *size >= most / 2), "{sizes:?}");
            assert!(sizes[8..].contains(&most), "{sizes:?}");
            size.ended(false, Duration::ZERO);
            assert!(size.bytes() <= most);
        }
    }

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
