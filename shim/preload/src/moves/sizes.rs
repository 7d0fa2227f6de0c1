//! How many bytes the tensors of a launch may have, as far as the numbers among its arguments tell:
//! a kernel is told how many elements it works on, or how many rows and columns.
//!
//! A plain value. That a size is plausible is no proof: numbers of other meaning are among the
//! arguments, too. So a *round* size tells nothing: where rows and columns are powers of two, each
//! distance between two tensors is one, and some product of two numbers is any power.

use smallvec::SmallVec;

/// Bytes of an element.
const ELEMENTS: [u64; 4] = [1, 2, 4, 8];

/// Allocators round a tensor's bytes up to a multiple of so many.
const ROUNDED: u64 = 512;

/// Small multiples of powers of two are round.
const ROUND: u64 = 16;

/// Round sizes up to this count all the same: a wrong one costs little.
const SMALL: u64 = 64 << 20;

/// Bytes, in ascending order.
#[derive(Debug, Default)]
pub(super) struct PlausibleSizes(SmallVec<[u64; 128]>);

impl PlausibleSizes {
    /// The sizes above `least` bytes: a number, or a product of two, times the bytes of an element.
    pub(super) fn of(numbers: &[u32], least: u64) -> Self {
        let mut sizes = SmallVec::new();
        let mut add = |count: u64| {
            let fits = ELEMENTS.into_iter().map(|element| count.saturating_mul(element));
            sizes.extend(fits.filter(|size| *size > least));
        };
        for (index, number) in numbers.iter().enumerate() {
            add(u64::from(*number));
            for other in &numbers[index..] {
                add(u64::from(*number) * u64::from(*other));
            }
        }
        sizes.sort_unstable();
        Self(sizes)
    }

    /// Is it one of the sizes, rounded up as an allocator does, and does that tell anything?
    pub(super) fn has(&self, bytes: u64) -> bool {
        let is_round = bytes >> bytes.trailing_zeros().min(63) < ROUND;
        (!is_round || bytes <= SMALL) && self.is_plausible(bytes)
    }

    fn is_plausible(&self, bytes: u64) -> bool {
        let larger = self.0.partition_point(|size| *size <= bytes);
        larger.checked_sub(1).is_some_and(|at| bytes - self.0[at] < ROUNDED)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (silent degradation): the size of a tensor that a kernel is told is not recognized.
    use super::*;

    #[test]
    fn counts_rows_by_columns_and_rounded_sizes_are_recognized() {
        let sizes = PlausibleSizes::of(&[256, 1001, 3_000_000], 1 << 20);
        for bytes in [
            3_000_000 * 4,
            3_000_000 * 256 * 4,
            1001 * 3_000_000 * 2,
            (1001 * 1001 * 2_u64).next_multiple_of(512),
        ] {
            assert!(sizes.has(bytes), "{bytes}");
        }
        for bytes in [0, 256 * 1001, 3_000_000 * 4 - 1, 3_000_000 * 4 + 512, u64::MAX] {
            assert!(!sizes.has(bytes), "{bytes}");
        }
    }

    /// Hazard (thrashing): of weights with sides of powers of two hundreds are taken for one.
    #[test]
    fn large_round_sizes_tell_nothing() {
        let sizes = PlausibleSizes::of(&[2048, 4096, 65536], 1 << 20);
        assert!(sizes.has(2048 * 4096 * 2) && sizes.is_plausible(65536 * 4096));
        assert!(!sizes.has(65536 * 4096));
    }

    #[test]
    fn without_numbers_no_size_is_plausible() {
        assert!(!PlausibleSizes::of(&[], 0).has(0));
    }
}
