//! Which memory is *late*: made by a program that had all it needed once before.
//!
//! A program that repeats itself starts its first period without free memory and its second one
//! with much. Its blocks lie at other places in the second period, so the peak of that period may
//! need a little more memory. If the third period used this memory like all other, it would find
//! free runs that the second one did not have, place its blocks elsewhere, and need other extents.
//! So late memory is used last. There is little of it. Where it would exceed a fixed part of all
//! memory, we assume that the program grows, and the memory that it makes is not late. ADR 0025 has
//! the measurement.

use crate::vocabulary::sizes::{FALLEN, LATE_PART};

/// How far a program's memory has fallen and grown. Sizes are bytes.
#[derive(Debug)]
pub(crate) struct Growth {
    /// Low-water mark of live bytes since memory was last made that is not late.
    low: u64,
    /// Late memory made.
    late: u64,
}

impl Default for Growth {
    fn default() -> Self {
        Self { low: u64::MAX, late: 0 }
    }
}

impl Growth {
    /// Blocks were freed; `live` bytes are live now.
    pub(crate) fn fallen_to(&mut self, live: u64) {
        self.low = self.low.min(live);
    }

    /// Returns whether `made` bytes of new memory are late. `held` includes them.
    pub(crate) fn is_late(&mut self, made: u64, held: u64) -> bool {
        let late = self.low < held / FALLEN && self.late + made <= held / LATE_PART;
        if late {
            self.late += made;
        } else {
            self.low = u64::MAX;
        }
        late
    }

    /// Memory was released: new memory of the same size may be late again.
    pub(crate) fn released(&mut self, bytes: u64) {
        self.late = self.late.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn only_a_little_that_is_made_after_a_fall_is_late() {
        let mut growth = Growth::default();
        assert!(!growth.is_late(64 * MIB, 1024 * MIB), "it never fell");
        growth.fallen_to(0);
        assert!(growth.is_late(48 * MIB, 1024 * MIB));
        assert!(growth.is_late(16 * MIB, 1024 * MIB), "still of the same peak");
        assert!(!growth.is_late(2 * MIB, 1024 * MIB), "it grows");
        growth.released(64 * MIB);
        assert!(!growth.is_late(2 * MIB, 1024 * MIB), "it has not fallen since");
    }

    #[test]
    fn a_program_that_keeps_much_has_not_come_to_an_end() {
        let mut growth = Growth::default();
        growth.fallen_to(512 * MIB);
        assert!(!growth.is_late(2 * MIB, 1024 * MIB));
    }
}
