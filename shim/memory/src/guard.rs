//! Room behind a block that shows when a program writes past its end. Where it is, as pure arithmetic.
//!
//! * [`Guard::Page`]: a large block has an extent of its own, and ends where the mapping ends; behind it lies a unit of
//!   address space in which nothing is ever mapped. So an access past the end faults at once, from the first multiple of
//!   [`ALIGNMENT`] on. Small blocks stay as they are: a unit of memory for each would be too much.
//! * [`Guard::Tail`]: every block has bytes behind its end that belong to nobody. Whoever allocated it can write a pattern
//!   there and see later whether it is still the same.

use std::ops::Range;

use crate::order::Order;
use crate::sizes::{Class, UNIT, round_up};
use crate::state::{Request, State};
use crate::timeline::Doubt;

/// Alignment of a block that ends where its mapping ends: what the driver promises of its own memory.
pub const ALIGNMENT: u64 = 256;

/// Least length of a tail, bytes: a row of 64 doubles, so that a loop that runs one row too far is seen.
pub const TAIL: u64 = 512;

/// Greatest length of a tail: what rounding adds.
pub const LONGEST_TAIL: usize = (TAIL + UNIT) as usize - 1;

/// How a block is set apart from what lies behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Unmapped address space behind every block that is not small.
    Page,
    /// Spare bytes behind every block.
    Tail,
}

/// Is a request of so many bytes followed by unmapped space, under [`Guard::Page`]?
pub fn is_fenced(bytes: usize) -> bool {
    Class::of(bytes as u64) == Class::Large
}

/// The spare bytes behind a block of [`Guard::Tail`]: from its end to the end of its last unit.
pub fn tail(address: u64, bytes: usize) -> Range<u64> {
    let end = address + bytes as u64;
    end..round_up(end + TAIL, UNIT).unwrap_or(end)
}

/// First address of a block of `bytes`, a multiple of [`ALIGNMENT`], that ends with the mapping.
pub(crate) fn at_the_end(base: u64, mapped: u64, bytes: u64) -> u64 {
    base + (mapped - bytes.min(mapped))
}

impl Request {
    /// The request for a block with a guard; `None` as for one without.
    pub(crate) fn guarded(asked: usize, order: Order, guard: Guard) -> Option<Self> {
        let plain = Self::new(asked, order)?;
        match guard {
            Guard::Page if is_fenced(asked) => {
                Some(Self { bytes: round_up(asked as u64, ALIGNMENT)?, class: Class::Guarded, ..plain })
            }
            Guard::Page => Some(plain),
            Guard::Tail => {
                let long = Self::new(asked.checked_add(TAIL as usize)?, order)?;
                Some(Self { asked, ..long })
            }
        }
    }
}

impl State {
    /// How to learn whether idle views may go, where there are more than `keep`.
    pub(crate) fn overdue_views(&mut self, keep: usize) -> Vec<Doubt> {
        let excess = self.ledger.extents.idle_views().len() > keep;
        if excess { self.timeline.doubts(None, usize::MAX) } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a guard that lies a byte too far lets a write pass; one that lies too near accuses the innocent.
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_tail_begins_at_the_first_byte_that_is_not_the_blocks() {
        for bytes in [1, 511, 512, 513, 1000, 1 << 20] {
            let tail = tail(0x7000_0000, bytes);
            let request = Request::guarded(bytes, Order::Device, Guard::Tail).expect("a size that fits");
            assert_eq!(tail.start, 0x7000_0000 + bytes as u64);
            assert_eq!(tail.end, 0x7000_0000 + request.bytes);
            assert!((TAIL..=LONGEST_TAIL as u64).contains(&(tail.end - tail.start)));
            assert_eq!(request.asked, bytes);
        }
    }

    #[test]
    fn a_fenced_block_ends_less_than_the_alignment_before_the_mapping_does() {
        for bytes in [MIB, MIB + 1, 2 * MIB, 3 * MIB - 255, 100 * MIB + 4] {
            let request = Request::guarded(bytes as usize, Order::Device, Guard::Page).expect("it fits");
            let mapped = request.bytes.next_multiple_of(2 * MIB);
            let address = at_the_end(0x7000_0000_0000, mapped, request.bytes);
            assert_eq!(address % ALIGNMENT, 0);
            assert!((0..ALIGNMENT).contains(&(0x7000_0000_0000 + mapped - address - bytes)));
        }
    }

    #[test]
    fn small_blocks_and_impossible_ones_are_as_without_a_guard() {
        let small = Request::guarded(1000, Order::Device, Guard::Page).expect("it fits");
        assert_eq!((small.class, small.bytes), (Class::Tiny, 1024));
        for guard in [Guard::Page, Guard::Tail] {
            assert!(Request::guarded(0, Order::Device, guard).is_none());
            assert!(Request::guarded(usize::MAX, Order::Device, guard).is_none());
        }
    }
}
