//! Places for large reservations of addresses that the program leaves to the driver.
//!
//! The driver puts them at the lowest free addresses, from 0x3_0200_0000 on, where two numbers of
//! four bytes side by side look like an address if the second one is 3 to 40: a size beside a rank,
//! for example. A launch with such words takes weights for memory that it may write. Addresses with
//! a larger upper half are seldom met by chance. A place is a wish: the driver gives another one if
//! it is taken.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The first place. Programs, libraries, heaps and stacks of x86-64 Linux lie elsewhere.
const FIRST: u64 = 0x3a37_0000_0000;

/// Places end before this.
const END: u64 = 0x4a37_0000_0000;

/// Allocators reserve more than the memory of a device for a segment. Smaller reservations are
/// placed as without the library.
const LEAST: u64 = 16 << 30;

/// Places begin at multiples of this.
const ALIGNMENT: u64 = 1 << 30;

/// See above.
pub(super) struct SegmentPlaces {
    next: AtomicU64,
}

impl SegmentPlaces {
    pub(super) const fn new() -> Self {
        Self { next: AtomicU64::new(FIRST) }
    }

    /// The place of the next reservation of so many bytes. `None`: the driver may choose.
    pub(super) fn next(&self, bytes: u64) -> Option<u64> {
        let bytes = Some(bytes).filter(|bytes| *bytes >= LEAST)?.checked_next_multiple_of(ALIGNMENT)?;
        let after = |at: u64| at.checked_add(bytes).filter(|end| *end <= END);
        self.next.fetch_update(Relaxed, Relaxed, after).ok()
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (silent degradation): numbers among the arguments of a launch are taken for addresses
    //! of weights, and these are not shared. Hazard (error): a place that is not to be had.
    use super::*;

    #[test]
    fn places_follow_each_other_until_the_end() {
        let places = SegmentPlaces::new();
        assert_eq!(places.next(LEAST - 1), None);
        assert_eq!(places.next(u64::MAX), None);
        assert_eq!(places.next(LEAST + 1), Some(FIRST));
        assert_eq!(places.next(LEAST), Some(FIRST + LEAST + ALIGNMENT));
        let rest: Vec<u64> = std::iter::from_fn(|| places.next(1 << 40)).collect();
        assert_eq!(rest.len(), 15);
        assert!(rest.iter().all(|at| at + (1 << 40) <= END));
    }
}
