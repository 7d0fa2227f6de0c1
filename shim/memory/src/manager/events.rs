//! Events, outside the lock: recording them, asking about them, and ordering streams behind them.
//!
//! What is learned is noted afterwards, under the lock, as [`Lessons`]. A fence may be known to several threads at once;
//! the last one to let go of it gives its events back.

use std::sync::Arc;
use std::time::Duration;

use wm_driver::gpu::Result;
use wm_driver::{Event, Gpu, StreamId};

use super::Manager;
use crate::books::free_cache::Part;
use crate::ordering::fence::{Doubt, Fence, Numbered};
use crate::ordering::lessons::Lessons;
use crate::policy::attempt::Attempt;
use crate::vocabulary::order::Order;

/// How long the host waits before it refuses a request. Bounded, because a stream may wait for the very thread that asks.
const PATIENCE: Duration = Duration::from_millis(500);

/// Why granted memory cannot be had.
#[derive(Debug, Clone, Copy)]
pub(super) enum Obstacle {
    /// A fence is gone.
    Lost,
    /// The requesting stream cannot be made to wait.
    CannotOrder,
}

impl Attempt {
    /// Remembers an obstacle, so that the next decision goes round it.
    pub(super) fn heed(&mut self, obstacle: Obstacle) {
        self.cannot_order |= matches!(obstacle, Obstacle::CannotOrder);
    }
}

impl Lessons {
    fn is_empty(&self) -> bool {
        self.recorded.is_empty() && self.past.is_empty() && self.behind.is_empty()
    }

    /// Every fence, to be let go of.
    pub(super) fn into_iter(self) -> impl Iterator<Item = Arc<Fence>> {
        self.recorded.into_iter().chain(self.past).chain(self.behind)
    }
}

impl<G: Gpu> Manager<G> {
    /// Orders the user's later work behind all fences, as far as they are not past already.
    pub(super) fn meet(&self, needs: &[Arc<Fence>], user: Order) -> (Lessons, Option<Obstacle>) {
        let mut lessons = Lessons::default();
        let obstacle = needs.iter().find_map(|fence| self.meet_one(fence, user, &mut lessons).err());
        (lessons, obstacle)
    }

    fn meet_one(
        &self,
        fence: &Arc<Fence>,
        user: Order,
        lessons: &mut Lessons,
    ) -> std::result::Result<(), Obstacle> {
        if self.are_done(&fence.events) {
            lessons.past.push(Arc::clone(fence));
            return Ok(());
        }
        let Order::Stream(stream) = user else { return Err(Obstacle::CannotOrder) };
        self.order_behind(stream, fence).map_err(|_| Obstacle::CannotOrder)?;
        lessons.behind.push(Arc::clone(fence));
        Ok(())
    }

    fn order_behind(&self, stream: StreamId, fence: &Fence) -> Result<()> {
        fence.events.iter().try_for_each(|event| self.gpu.order(stream, event))
    }

    /// An event that the driver says nothing of, because its context has failed, is not done.
    fn are_done(&self, events: &[Event]) -> bool {
        events.iter().all(|event| self.gpu.is_done(event).unwrap_or(false))
    }

    /// A block was freed in a stream, and an event is to tell when that is past.
    pub(super) fn record(&self, stream: StreamId, exact: bool, numbered: Numbered) {
        let Ok(event) = self.gpu.record(stream) else { return };
        let (order, Numbered { number, life, .. }) = (Order::Stream(stream), numbered);
        let fence = Arc::new(Fence { events: vec![event], order, upto: number, exact, life });
        let mut state = self.lock();
        let given_up = state.timeline.add_fence(&fence);
        let overdue = state.timeline.overdue(order);
        drop(state);
        self.recycle(given_up.into_iter().chain([fence]));
        // So that fences do not pile up where nobody asks about them.
        self.inquire(overdue.into_iter().map(Doubt::Ask).collect());
    }

    /// Asks how far streams have come.
    pub(super) fn inquire(&self, doubts: Vec<Doubt>) {
        let mut lessons = Lessons::default();
        doubts.iter().for_each(|doubt| self.answer(doubt, &mut lessons));
        self.note(lessons, doubts);
    }

    fn answer(&self, doubt: &Doubt, lessons: &mut Lessons) {
        let fence = match doubt {
            Doubt::Ask(fence) => Arc::clone(fence),
            Doubt::Record { order, upto, life } => {
                let Some(Ok(event)) = order.stream().map(|stream| self.gpu.probe(stream)) else { return };
                let events = vec![event];
                let fence = Arc::new(Fence { events, order: *order, upto: *upto, exact: false, life: *life });
                lessons.recorded.push(Arc::clone(&fence));
                fence
            }
        };
        if self.are_done(&fence.events) {
            lessons.past.push(fence);
        }
    }

    fn note(&self, lessons: Lessons, doubts: Vec<Doubt>) {
        if lessons.is_empty() && doubts.is_empty() {
            return;
        }
        let told = self.lock().learn(&lessons, Order::Device);
        let asked = doubts.into_iter().filter_map(|doubt| match doubt {
            Doubt::Ask(fence) => Some(fence),
            Doubt::Record { .. } => None,
        });
        self.recycle(lessons.into_iter().chain(told).chain(asked));
    }

    /// Waits until one of the fences is done, for a while.
    pub(super) fn wait_for_one(&self, attempt: &mut Attempt, fences: Vec<Arc<Fence>>) {
        let events: Vec<&[Event]> = fences.iter().map(|fence| &fence.events[..]).collect();
        let done = self.gpu.wait_any(&events, PATIENCE);
        let past: Vec<_> = done.and_then(|index| fences.get(index).cloned()).into_iter().collect();
        attempt.waited = past.is_empty();
        let mut state = self.lock();
        state.counters.waits += 1;
        drop(state);
        self.note(Lessons { past, ..Lessons::default() }, fences.into_iter().map(Doubt::Ask).collect());
    }

    /// Lets go of fences. The last owner gives the events back.
    pub(super) fn recycle(&self, fences: impl IntoIterator<Item = Arc<Fence>>) {
        let owned = fences.into_iter().filter_map(Arc::into_inner);
        owned.flat_map(|fence| fence.events).for_each(|event| self.gpu.recycle(event));
    }

    /// The stream is about to be destroyed. What was freed in it gets an event while one can still be recorded there.
    pub fn retire(&self, stream: StreamId) {
        let order = Order::Stream(stream);
        let mut state = self.lock();
        state.flush(Part::Of(order));
        let doubt = state.timeline.last(order);
        drop(state);
        self.inquire(doubt.into_iter().collect());
        self.lock().timeline.retire(stream);
    }
}
