//! The values that the timeline and the callers of the driver exchange: fences, numbered frees,
//! queries, marks.
//!
//! Fences are shared (`Arc`): one thread may query a fence, outside the lock, while another learns
//! that it is done. The last owner recycles its events.

use std::sync::Arc;

use wm_driver::Event;

use crate::vocabulary::order::{Order, Point};

/// Events, and the frees that are past when all of them are done.
#[derive(Debug)]
pub(crate) struct Fence {
    pub(crate) events: Vec<Event>,
    pub(crate) order: Order,
    /// All frees of the order up to this number.
    pub(crate) upto: u64,
    /// It was recorded with the free of this very number.
    pub(crate) exact: bool,
    /// The life of the timeline that its number is of.
    pub(crate) life: u64,
}

/// A free, as it was numbered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) life: u64,
    /// An event is to be recorded now; is the fence exact?
    pub(crate) record: Option<bool>,
}

/// How to learn whether a stream has come further.
#[derive(Debug)]
pub(crate) enum Query {
    /// Ask whether this fence is done.
    Ask(Arc<Fence>),
    /// Record an event to ask about. It covers the order's frees up to a number.
    Record { order: Order, upto: u64, life: u64 },
}

/// The frees up to a moment. True in one life of the timeline only.
#[derive(Debug, Clone, Default)]
pub(crate) struct Marks {
    pub(crate) points: Vec<Point>,
    pub(super) life: u64,
}
