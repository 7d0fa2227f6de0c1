//! When memory may be used again, as plain data.
//!
//! A free takes effect at a point of an [`Order`]: behind the work that is in a stream, or (for
//! `cuMemFree`, which names none) behind all work that is on the device. Points of one order are
//! numbered 1, 2, 3…; a free at a point *n* is past when the GPU has passed *n*. [`Pending`] is the
//! set of points that a free piece of memory still waits for: one piece may have been coalesced
//! from several streams' frees.

use smallvec::{SmallVec, smallvec};
use wm_driver::StreamId;

/// The work that a request is ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// After the work that is in this stream: `cuMemAllocAsync`, `cuMemFreeAsync`.
    Stream(StreamId),
    /// After all work on the device, and usable from any stream: `cuMemAlloc`, `cuMemFree`.
    Device,
}

impl Order {
    /// The stream; `None` for the device.
    pub fn stream(self) -> Option<StreamId> {
        match self {
            Self::Stream(stream) => Some(stream),
            Self::Device => None,
        }
    }
}

/// A point of an order: everything freed there so far, numbered.
pub(crate) type Point = (Order, u64);

/// The points that must be past before a piece is idle: at most one an order, the latest, sorted by
/// order. Most have one, which needs no memory of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pending {
    points: SmallVec<[Point; 1]>,
    /// Merged of several segments: not every byte waits for all points. No stream is ordered behind
    /// it then, for it would wait for more than the bytes that it gets.
    blurred: bool,
}

impl Pending {
    pub(crate) fn at(point: Point) -> Self {
        Self { points: smallvec![point], blurred: false }
    }

    pub(crate) fn points(&self) -> &[Point] {
        &self.points
    }

    pub(crate) fn is_blurred(&self) -> bool {
        self.blurred
    }

    /// Notes that bytes with fewer points were merged into it.
    pub(crate) fn blur(&mut self) {
        self.blurred = true;
    }

    pub(crate) fn add(&mut self, (order, number): Point) {
        match self.points.binary_search_by_key(&order, |point| point.0) {
            Ok(index) => self.points[index].1 = self.points[index].1.max(number),
            Err(index) => self.points.insert(index, (order, number)),
        }
    }

    pub(crate) fn join(&mut self, other: &Self) {
        other.points.iter().for_each(|point| self.add(*point));
        self.blurred |= other.blurred;
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Point) -> bool) {
        self.points.retain(|point| keep(point));
        self.blurred &= !self.points.is_empty();
    }
}
