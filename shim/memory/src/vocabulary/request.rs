//! Requests and frees of the program, in the terms of the manager.

use wm_driver::Shortfall;

use crate::vocabulary::guard::{self, ALIGNMENT, BlockGuard, TAIL, is_fenced};
use crate::vocabulary::order::Order;
use crate::vocabulary::sizes::{Class, UNIT, round_up};

/// Where a block begins its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FirstTier {
    /// On the device, and elsewhere where that is full and the user allows it.
    #[default]
    Anywhere,
    /// On the device, or nowhere.
    Device,
    /// On the host, even where the device has room.
    Host,
    /// As anywhere, but on no other GPU. The CPU and the GPU use the block in turn.
    Unified,
}

/// An allocation that the program asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) asked: usize,
    /// Rounded to whole units.
    pub(crate) bytes: u64,
    /// The class that its block is packed with; `None`: the block has an extent of its own and lies
    /// at the end of it.
    pub(crate) class: Option<Class>,
    pub(crate) order: Order,
    pub(crate) first_tier: FirstTier,
    /// Its block's first address is a multiple of this.
    pub(crate) alignment: u64,
}

impl Request {
    /// `None` for sizes that no memory has: 0, or beyond the address space.
    pub(crate) fn new(asked: usize, order: Order) -> Option<Self> {
        let bytes = round_up(asked as u64, UNIT).filter(|bytes| (1..1 << 56).contains(bytes))?;
        let (class, first_tier) = (Some(Class::of(bytes)), FirstTier::Anywhere);
        Some(Self { asked, bytes, class, order, first_tier, alignment: UNIT })
    }

    /// The same for a block that begins on a handle if it is as large as one, where all handles are
    /// of so many bytes.
    pub(crate) fn in_chunks(self, chunk: u64) -> Self {
        let begins = self.class.is_some() && self.bytes >= chunk;
        Self { alignment: if begins { chunk } else { self.alignment }, ..self }
    }

    /// The request for a block with a guard; `None` as for one without.
    pub(crate) fn guarded(asked: usize, order: Order, guard: BlockGuard) -> Option<Self> {
        let plain = Self::new(asked, order)?;
        match guard {
            BlockGuard::Page if is_fenced(asked) => {
                Some(Self { bytes: round_up(asked as u64, ALIGNMENT)?, class: None, ..plain })
            }
            BlockGuard::Page => Some(plain),
            BlockGuard::Tail => {
                let long = Self::new(asked.checked_add(TAIL as usize)?, order)?;
                Some(Self { asked, ..long })
            }
        }
    }

    /// The request for a block that is the CPU's at times: no other block lies on its memory.
    pub(crate) fn unified(asked: usize, order: Order, granularity: u64) -> Option<Self> {
        let plain = Self::new(asked, order)?;
        let bytes = round_up(plain.bytes, granularity)?;
        Some(Self { bytes, class: None, first_tier: FirstTier::Unified, ..plain })
    }

    /// As the caller is asked about it, where the device is full.
    pub(crate) fn shortfall(&self) -> Shortfall {
        Shortfall { bytes: self.asked, in_stream: self.order.stream().is_some() }
    }

    /// Where its block begins in an extent that is made for it.
    pub(crate) fn place(&self, base: u64, mapped: u64) -> u64 {
        match self.class {
            None => guard::at_the_end(base, mapped, self.bytes),
            Some(_) => base,
        }
    }
}

/// How the memory of a freed block may be used again.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Freed {
    /// Nothing touches it any more.
    Past,
    /// Once the order has come so far. `eager`: no event can be recorded in it later.
    In { order: Order, eager: bool },
}

#[cfg(test)]
mod tests {
    //! Hazard: a guard that lies a byte too far lets a write pass; one that lies too near accuses
    //! the innocent.
    use super::*;
    use crate::vocabulary::guard::{LONGEST_TAIL, at_the_end, tail};

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_tail_begins_at_the_first_byte_that_is_not_the_blocks() {
        for bytes in [1, 511, 512, 513, 1000, 1 << 20] {
            let tail = tail(0x7000_0000, bytes);
            let request = Request::guarded(bytes, Order::Device, BlockGuard::Tail).expect("a size that fits");
            assert_eq!(tail.start, 0x7000_0000 + bytes as u64);
            assert_eq!(tail.end, 0x7000_0000 + request.bytes);
            assert!((TAIL..=LONGEST_TAIL as u64).contains(&(tail.end - tail.start)));
            assert_eq!(request.asked, bytes);
        }
    }

    #[test]
    fn a_fenced_block_ends_less_than_the_alignment_before_the_mapping_does() {
        for bytes in [MIB, MIB + 1, 2 * MIB, 3 * MIB - 255, 100 * MIB + 4] {
            let request = Request::guarded(bytes as usize, Order::Device, BlockGuard::Page).expect("it fits");
            let mapped = request.bytes.next_multiple_of(2 * MIB);
            let address = at_the_end(0x7000_0000_0000, mapped, request.bytes);
            assert_eq!(address % ALIGNMENT, 0);
            assert!((0..ALIGNMENT).contains(&(0x7000_0000_0000 + mapped - address - bytes)));
        }
    }

    #[test]
    fn small_blocks_and_impossible_ones_are_as_without_a_guard() {
        let small = Request::guarded(1000, Order::Device, BlockGuard::Page).expect("it fits");
        assert_eq!((small.class, small.bytes), (Some(Class::Tiny), 1024));
        for guard in [BlockGuard::Page, BlockGuard::Tail] {
            assert!(Request::guarded(0, Order::Device, guard).is_none());
            assert!(Request::guarded(usize::MAX, Order::Device, guard).is_none());
        }
    }
}
