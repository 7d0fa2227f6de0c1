//! Which memory is *late*: made by a program that had all it needed once before.
//!
//! A program that repeats itself begins its first period with no free memory and its second with much. So its blocks lie
//! differently in the second, whose peak may need a little more memory. If that were treated like all other memory, the third
//! period would find free runs that the second did not have, take other decisions, and need other extents. So late memory is
//! used last. It is little, so this costs next to nothing. Where it would exceed a fixed part of all memory, the program does
//! not return to an old peak but grows, and what it makes is not late.

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
    /// Blocks were freed; so much is live now.
    pub(crate) fn fallen_to(&mut self, live: u64) {
        self.low = self.low.min(live);
    }

    /// Memory is made; with it, so much is held. Is it late?
    pub(crate) fn is_late(&mut self, made: u64, held: u64) -> bool {
        let late = self.low < held / FALLEN && self.late + made <= held / LATE_PART;
        if late {
            self.late += made;
        } else {
            self.low = u64::MAX;
        }
        late
    }

    /// Memory was given back: as much may be late anew.
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
