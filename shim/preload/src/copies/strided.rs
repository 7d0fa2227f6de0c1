//! Which bytes a copy touches at one end: a number of rows and layers at fixed distances.

use std::ops::Range;

/// Bytes in a row, rows in a layer, layers.
pub(crate) type CopySize = [u64; 3];

/// The bytes that a copy touches at one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StridedRange {
    /// First byte.
    pub(crate) address: u64,
    /// Distance from one byte, row and layer to the next, in bytes.
    pub(crate) steps: [u64; 3],
}

impl StridedRange {
    /// Consecutive bytes.
    #[inline]
    pub(crate) fn linear(address: u64) -> Self {
        Self { address, steps: [1, 0, 0] }
    }

    /// The address of the byte at a place: so many bytes, rows and layers behind the first.
    pub(crate) fn byte_at(&self, place: &CopySize) -> u64 {
        let offset = |(at, step): (&u64, &u64)| at.wrapping_mul(*step);
        place.iter().zip(&self.steps).map(offset).fold(self.address, u64::wrapping_add)
    }

    /// The range from the first byte of a copy of this size to its last, gaps between rows
    /// included. Empty if the copy is empty, or ends behind the last address.
    pub(crate) fn range(&self, size: &CopySize) -> Range<u64> {
        let last = size.iter().zip(&self.steps).try_fold(self.address, |sum, (size, step)| {
            sum.checked_add(size.checked_sub(1)?.checked_mul(*step)?)
        });
        self.address..last.and_then(|last| last.checked_add(1)).unwrap_or(self.address)
    }
}
