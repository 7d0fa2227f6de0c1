//! What is known about the GPU's progress: which points of which orders are past, and which events will tell.
//!
//! * A *line* per order counts its frees and remembers up to which one the GPU has passed.
//! * A *fence* is a set of recorded events and the points that are past once all of them are done.
//! * A stream that was made to wait for a fence, on the GPU, may use what the fence covers although the host has not
//!   seen it pass.
//!
//! Pure data: nothing here calls the driver. Fences are shared (`Arc`), because a thread may be asking the driver about
//! one, outside the lock, while another thread learns that it is done; whoever lets go last recycles its events.
//!
//! Invariant: a point is reported past only if the host knows that the GPU passed it. A line that is not known counts
//! as past: it never had a free, or it was retired and drained.

use std::sync::Arc;

use wm_driver::{Event, StreamId};

use crate::fast_map::FastMap;
use crate::order::{Order, Pending, Point};
use crate::table::{Keyed, Table};

/// A cache line: a free looks at one.
#[derive(Debug)]
#[repr(align(64))]
struct Line {
    order: Order,
    freed: u64,
    past: u64,
    retired: bool,
}

impl Line {
    fn new(order: Order) -> Self {
        Self { order, freed: 0, past: 0, retired: false }
    }

    /// Everything in it.
    fn mark(&self) -> Point {
        (self.order, self.freed)
    }

    fn is_drained(&self) -> bool {
        self.retired && self.past >= self.freed
    }
}

impl Keyed for Line {
    type Key = Order;

    fn key(&self) -> Order {
        self.order
    }
}

/// Events, and what is past when all of them are done.
#[derive(Debug)]
pub(crate) struct Fence {
    pub(crate) events: Vec<Event>,
    pub(crate) covers: Vec<Point>,
}

impl Fence {
    fn covers(&self, (order, number): Point) -> bool {
        self.covers.iter().any(|(covered, upto)| *covered == order && *upto >= number)
    }
}

/// A point somebody needs, and how to learn about it.
#[derive(Debug)]
pub(crate) struct Need {
    pub(crate) order: Order,
    /// Recorded already; else record one in `order`, and it covers `marks`, which were read before the recording.
    pub(crate) fence: Option<Arc<Fence>>,
    pub(crate) marks: Vec<Point>,
}

#[derive(Debug, Default)]
pub(crate) struct Timeline {
    lines: Table<Line>,
    fences: Vec<Arc<Fence>>,
    /// `(waiter, order)` to the last point of `order` that `waiter`'s later work comes after.
    behind: FastMap<(StreamId, Order), u64>,
    /// A line was dropped since [`Timeline::has_dropped`] was last asked.
    dropped: bool,
}

impl Timeline {
    /// Numbers a free.
    pub(crate) fn freed(&mut self, order: Order) -> u64 {
        let line = self.lines.get_or_insert(order, || Line::new(order));
        line.freed += 1;
        line.freed
    }

    pub(crate) fn is_past(&self, (order, number): Point) -> bool {
        self.lines.get(order).is_none_or(|line| line.past >= number)
    }

    pub(crate) fn all_past(&self, pending: &Pending) -> bool {
        pending.points().iter().all(|point| self.is_past(*point))
    }

    /// May later work of `user` touch what waits for `point`, with no further call?
    fn is_behind(&self, user: Order, point: Point) -> bool {
        let (order, number) = point;
        let Order::Stream(stream) = user else { return self.is_past(point) };
        user == order
            || self.behind.get(&(stream, order)).is_some_and(|upto| *upto >= number)
            || self.is_past(point)
    }

    pub(crate) fn is_ready(&self, user: Order, pending: &Pending) -> bool {
        pending.points().iter().all(|point| self.is_behind(user, *point))
    }

    /// Could events make `pending` usable for `user`, apart from the orders in `barred`?
    pub(crate) fn can_be_ordered(&self, user: Order, pending: &Pending, barred: &[Order]) -> bool {
        pending
            .points()
            .iter()
            .all(|point| self.is_behind(user, *point) || self.can_be_fenced(*point, barred))
    }

    fn can_be_fenced(&self, point: Point, barred: &[Order]) -> bool {
        !barred.contains(&point.0) && (!self.is_retired(point.0) || self.fence(point).is_some())
    }

    fn is_retired(&self, order: Order) -> bool {
        self.lines.get(order).is_some_and(|line| line.retired)
    }

    fn fence(&self, point: Point) -> Option<&Arc<Fence>> {
        self.fences.iter().find(|fence| fence.covers(point))
    }

    /// What `user` must learn or order before it may touch what is `pending`.
    pub(crate) fn needs(&self, user: Order, pending: &Pending) -> Vec<Need> {
        pending
            .points()
            .iter()
            .filter(|point| !self.is_behind(user, **point))
            .map(|p| self.need(*p))
            .collect()
    }

    /// What the host must learn before `pending` is past, apart from what cannot be learned now.
    pub(crate) fn outstanding(&self, pending: &Pending, barred: &[Order]) -> Vec<Need> {
        let open = |point: &&Point| !self.is_past(**point) && self.can_be_fenced(**point, barred);
        pending.points().iter().filter(open).map(|point| self.need(*point)).collect()
    }

    /// What is left to learn about an order, if anything is.
    pub(crate) fn last(&self, order: Order) -> Vec<Need> {
        let points = self.marks(order);
        points.into_iter().filter(|point| !self.is_past(*point)).map(|point| self.need(point)).collect()
    }

    fn need(&self, point: Point) -> Need {
        let fence = self.fence(point).cloned();
        let marks = if fence.is_some() { Vec::new() } else { self.marks(point.0) };
        Need { order: point.0, fence, marks }
    }

    /// The points that an event recorded from now on in `order` covers. Behind the device are all streams but the
    /// destroyed ones, which no recording reaches.
    pub(crate) fn marks(&self, order: Order) -> Vec<Point> {
        match order {
            Order::Stream(_) => self.lines.get(order).map(Line::mark).into_iter().collect(),
            Order::Device => self.lines.iter().filter(|line| !line.retired).map(Line::mark).collect(),
        }
    }

    /// Every point there is: what a wait for the whole device covers.
    pub(crate) fn all_marks(&self) -> Vec<Point> {
        self.lines.iter().map(Line::mark).collect()
    }

    pub(crate) fn add_fence(&mut self, fence: &Arc<Fence>) {
        self.fences.push(Arc::clone(fence));
    }

    /// `stream` now waits for the fence on the GPU.
    pub(crate) fn now_behind(&mut self, stream: StreamId, fence: &Fence) {
        for (order, number) in &fence.covers {
            let upto = self.behind.entry((stream, *order)).or_default();
            *upto = (*upto).max(*number);
        }
    }

    /// The host knows that these points are past. Returns the fences that have nothing left to tell.
    #[must_use = "their events are to be recycled, outside the lock"]
    pub(crate) fn reached(&mut self, points: &[Point]) -> Vec<Arc<Fence>> {
        for (order, number) in points {
            if let Some(line) = self.lines.get_mut(*order) {
                line.past = line.past.max(*number);
            }
        }
        self.drop_drained();
        let lines = &self.lines;
        let told = |(order, number): &Point| lines.get(*order).is_none_or(|line| line.past >= *number);
        self.fences.extract_if(.., |fence| fence.covers.iter().all(told)).collect()
    }

    fn drop_drained(&mut self) {
        if self.lines.iter().any(Line::is_drained) {
            self.lines.retain(|line| !line.is_drained());
            self.dropped = true;
            let lines = &self.lines;
            self.behind.retain(|(_, order), _| lines.get(*order).is_some());
        }
    }

    /// Has a line gone, so that points that name it only cost time?
    pub(crate) fn has_dropped(&mut self) -> bool {
        std::mem::take(&mut self.dropped)
    }

    /// The stream is about to be destroyed: nothing can be recorded in it any more.
    pub(crate) fn retire(&mut self, stream: StreamId) {
        self.behind.retain(|(waiter, _), _| *waiter != stream);
        if let Some(line) = self.lines.get_mut(Order::Stream(stream)) {
            line.retired = true;
        }
        self.drop_drained();
    }

    /// The oldest fences, at most `some`, when there are more than `limit`.
    pub(crate) fn overdue(&self, limit: usize, some: usize) -> Vec<Arc<Fence>> {
        self.fences.iter().take(self.fences.len().saturating_sub(limit).min(some)).cloned().collect()
    }

    /// Forgets everything; the fences are the caller's.
    pub(crate) fn clear(&mut self) -> Vec<Arc<Fence>> {
        self.lines = Table::default();
        self.behind.clear();
        std::mem::take(&mut self.fences)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Order = Order::Stream(StreamId(1));
    const T: Order = Order::Stream(StreamId(2));

    fn fence(covers: Vec<Point>) -> Arc<Fence> {
        Arc::new(Fence { events: Vec::new(), covers })
    }

    #[test]
    fn a_stream_reuses_its_own_memory_at_once_and_others_need_an_event() {
        let mut timeline = Timeline::default();
        let pending = Pending::at((S, timeline.freed(S)));
        assert!(timeline.is_ready(S, &pending));
        assert!(!timeline.is_ready(T, &pending));
        assert!(!timeline.is_ready(Order::Device, &pending));
        assert_eq!(timeline.needs(T, &pending).len(), 1);
    }

    #[test]
    fn an_ordered_stream_may_use_what_the_fence_covers_and_nothing_later() {
        let mut timeline = Timeline::default();
        let early = Pending::at((S, timeline.freed(S)));
        let recorded = fence(timeline.marks(S));
        let late = Pending::at((S, timeline.freed(S)));
        timeline.now_behind(StreamId(2), &recorded);
        assert!(timeline.is_ready(T, &early));
        assert!(!timeline.is_ready(T, &late));
        assert!(!timeline.is_ready(Order::Device, &early), "the host has not seen it pass");
    }

    #[test]
    fn a_retired_stream_without_a_fence_can_only_be_waited_out_with_the_device() {
        let mut timeline = Timeline::default();
        let pending = Pending::at((S, timeline.freed(S)));
        timeline.retire(StreamId(1));
        assert!(!timeline.can_be_ordered(T, &pending, &[]));
        let marks = timeline.all_marks();
        assert!(timeline.reached(&marks).is_empty());
        assert!(timeline.is_ready(T, &pending));
    }

    #[test]
    fn a_fence_is_returned_once_all_it_covers_is_past() {
        let mut timeline = Timeline::default();
        let (s, t) = ((S, timeline.freed(S)), (T, timeline.freed(T)));
        timeline.add_fence(&fence(vec![s, t]));
        assert!(timeline.reached(&[s]).is_empty());
        assert_eq!(timeline.reached(&[t]).len(), 1);
    }
}
