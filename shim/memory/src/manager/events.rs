//! Events, outside the lock: recording them, asking about them, and ordering streams behind them.
//!
//! [`EventResults`] collects the driver's answers, to be recorded under the lock afterwards.
//! Several threads may hold one fence; the last to drop it gives its events back.

use std::sync::Arc;
use std::time::Duration;

use wm_driver::gpu::Result;
use wm_driver::{Event, Gpu, StreamId};

use super::Manager;
use crate::books::free_cache::FlushScope;
use crate::ordering::fence::{Fence, Numbered, Query};
use crate::ordering::results::EventResults;
use crate::policy::attempt::Attempt;
use crate::vocabulary::order::Order;

/// How long the host waits before it refuses a request. Bounded, because a stream may wait for the
/// very thread that asks.
const PATIENCE: Duration = Duration::from_millis(500);

/// Why the program cannot have memory that was granted.
#[derive(Debug, Clone, Copy)]
pub(super) enum GrantError {
    /// A fence is gone.
    Lost,
    /// The requesting stream cannot be made to wait.
    CannotOrder,
}

impl Attempt {
    /// Remembers an error, so that the next decision avoids it.
    pub(super) fn note_error(&mut self, error: GrantError) {
        self.cannot_order |= matches!(error, GrantError::CannotOrder);
    }
}

impl EventResults {
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
    pub(super) fn order_behind_all(
        &self,
        needs: &[Arc<Fence>],
        user: Order,
    ) -> (EventResults, Option<GrantError>) {
        let mut results = EventResults::default();
        let error = needs.iter().find_map(|fence| self.order_behind_fence(fence, user, &mut results).err());
        (results, error)
    }

    fn order_behind_fence(
        &self,
        fence: &Arc<Fence>,
        user: Order,
        results: &mut EventResults,
    ) -> std::result::Result<(), GrantError> {
        if self.are_done(&fence.events) {
            results.past.push(Arc::clone(fence));
            return Ok(());
        }
        let Order::Stream(stream) = user else { return Err(GrantError::CannotOrder) };
        self.enqueue_wait(stream, fence).map_err(|_| GrantError::CannotOrder)?;
        results.behind.push(Arc::clone(fence));
        Ok(())
    }

    fn enqueue_wait(&self, stream: StreamId, fence: &Fence) -> Result<()> {
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
        // So that fences do not pile up where no wait covers them.
        let mut queries = state.timeline.polls();
        queries.extend(state.timeline.overdue(order).map(Query::Ask));
        drop(state);
        self.recycle(given_up.into_iter().chain([fence]));
        self.run_queries(queries);
    }

    /// Asks how far streams have come.
    pub(super) fn run_queries(&self, queries: Vec<Query>) {
        let mut results = EventResults::default();
        queries.iter().for_each(|query| self.run_query(query, &mut results));
        self.commit_results(results, queries);
    }

    fn run_query(&self, query: &Query, results: &mut EventResults) {
        let fence = match query {
            Query::Ask(fence) => Arc::clone(fence),
            Query::Record { order, upto, life } => {
                let Some(Ok(event)) = order.stream().map(|stream| self.gpu.probe(stream)) else { return };
                let events = vec![event];
                let fence = Arc::new(Fence { events, order: *order, upto: *upto, exact: false, life: *life });
                results.recorded.push(Arc::clone(&fence));
                fence
            }
        };
        if self.are_done(&fence.events) {
            results.past.push(fence);
        }
    }

    pub(super) fn commit_results(&self, results: EventResults, queries: Vec<Query>) {
        if results.is_empty() && queries.is_empty() {
            return;
        }
        let told = self.lock().note_results(&results, Order::Device);
        let asked = queries.into_iter().filter_map(|query| match query {
            Query::Ask(fence) => Some(fence),
            Query::Record { .. } => None,
        });
        self.recycle(results.into_iter().chain(told).chain(asked));
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
        self.commit_results(
            EventResults { past, ..EventResults::default() },
            fences.into_iter().map(Query::Ask).collect(),
        );
    }

    /// Lets go of fences. The last owner gives the events back.
    pub(super) fn recycle(&self, fences: impl IntoIterator<Item = Arc<Fence>>) {
        let owned = fences.into_iter().filter_map(Arc::into_inner);
        owned.flat_map(|fence| fence.events).for_each(|event| self.gpu.recycle(event));
    }

    /// The stream is about to be destroyed. The frees in it get an event while one can still be
    /// recorded there.
    pub fn retire_stream(&self, stream: StreamId) {
        let order = Order::Stream(stream);
        let mut state = self.lock();
        state.flush(FlushScope::Of(order));
        let query = state.timeline.last(order);
        drop(state);
        self.run_queries(query.into_iter().collect());
        let mut state = self.lock();
        state.timeline.retire(stream);
        let queries = state.timeline.polls();
        drop(state);
        self.run_queries(queries);
    }
}
