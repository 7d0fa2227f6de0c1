//! How far one order has come: the numbers of its frees, and up to which of them the GPU has
//! passed.

use crate::containers::table::Keyed;
use crate::vocabulary::order::{Order, Point};

/// A cache line: a free looks at one.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct StreamClock {
    pub(super) order: Order,
    /// The number of the latest free.
    pub(super) freed: u64,
    pub(super) past: u64,
    /// Bytes of small frees that no event was recorded behind.
    pub(super) unrecorded: u64,
    /// The next small free shares the latest number.
    pub(super) open: bool,
    pub(super) retired: bool,
    /// No event can be recorded in it later: only the fences that it has will tell.
    pub(super) eager: bool,
}

impl StreamClock {
    /// All frees of the order up to `past` are past.
    pub(super) fn new(order: Order, past: u64) -> Self {
        Self { order, freed: past, past, unrecorded: 0, open: false, retired: false, eager: false }
    }

    /// All frees up to now. Later ones get another number.
    pub(super) fn close(&mut self) -> Point {
        self.open = false;
        (self.order, self.freed)
    }

    pub(super) fn is_behind(&self) -> bool {
        self.past < self.freed
    }
}

impl Keyed for StreamClock {
    type Key = Order;

    fn key(&self) -> Order {
        self.order
    }
}
