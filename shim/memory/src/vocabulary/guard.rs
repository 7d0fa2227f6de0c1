//! Room behind a block that shows when a program writes past its end. Where it is, as pure
//! arithmetic.
//!
//! * [`BlockGuard::Page`]: a large block has an extent of its own, and ends where the mapping ends;
//!   behind it lies a unit of address space in which nothing is ever mapped. So an access past the
//!   end faults at once, from the first multiple of [`ALIGNMENT`] on. Small blocks stay as they
//!   are: a unit of memory for each would be too much.
//! * [`BlockGuard::Tail`]: every block has bytes behind its end that belong to no block. The caller
//!   of the allocation can write a pattern there and compare it later.

use std::ops::Range;

use crate::vocabulary::sizes::{Class, UNIT, round_up};

/// Alignment of a block that ends where its mapping ends: the alignment that the driver promises of
/// its own memory.
pub const ALIGNMENT: u64 = 256;

/// Least length of a tail, bytes: a row of 64 doubles, so that a loop that runs one row too far is
/// seen.
pub const TAIL: u64 = 512;

/// Greatest length of a tail: the least length and the most that rounding adds.
pub const LONGEST_TAIL: usize = (TAIL + UNIT) as usize - 1;

/// How a block is set apart from the memory behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockGuard {
    /// Unmapped address space behind every block that is not small.
    Page,
    /// Spare bytes behind every block.
    Tail,
}

/// Is a request of so many bytes followed by unmapped space, under [`BlockGuard::Page`]?
pub fn is_fenced(bytes: usize) -> bool {
    Class::of(bytes as u64) == Class::Large
}

/// The spare bytes behind a block of [`BlockGuard::Tail`]: from its end to the end of its last
/// unit.
pub fn tail(address: u64, bytes: usize) -> Range<u64> {
    let end = address + bytes as u64;
    end..round_up(end + TAIL, UNIT).unwrap_or(end)
}

/// First address of a block of `bytes`, a multiple of [`ALIGNMENT`], that ends with the mapping.
pub(crate) fn at_the_end(base: u64, mapped: u64, bytes: u64) -> u64 {
    base + (mapped - bytes.min(mapped))
}
