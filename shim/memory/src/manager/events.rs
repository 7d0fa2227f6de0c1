//! Events, outside the lock: recording them, asking about them, waiting for them, and ordering streams behind them.
//!
//! What is learned is noted afterwards, under the lock, as [`Lessons`]. A fence may be known to several threads at once;
//! the last one to let go of it gives its events back.

use std::sync::Arc;

use wm_abi::CUresult;
use wm_driver::gpu::Result;
use wm_driver::{Event, Gpu, StreamId};

use super::Manager;
use crate::decide::Attempt;
use crate::front::Part;
use crate::order::Order;
use crate::sizes::{FENCES, SWEEP};
use crate::state::Lessons;
use crate::timeline::{Fence, Need};

/// Why a need could not be met.
#[derive(Debug, Clone, Copy)]
pub(super) enum Obstacle {
    /// No event can be recorded in this order now: a stream of it is being captured, or is gone.
    CannotRecord(Order),
    /// The requesting stream cannot be made to wait.
    CannotOrder,
    /// The context has failed.
    Broken(CUresult),
}

impl Attempt {
    /// Remembers an obstacle, so that the next decision goes round it.
    pub(super) fn heed(&mut self, obstacle: Obstacle) -> Result<()> {
        match obstacle {
            Obstacle::CannotRecord(order) => self.barred.push(order),
            Obstacle::CannotOrder => self.ready_only = true,
            Obstacle::Broken(code) => return Err(code),
        }
        Ok(())
    }
}

impl Lessons {
    /// Every fence, to be let go of.
    pub(super) fn into_iter(self) -> impl Iterator<Item = Arc<Fence>> {
        self.recorded.into_iter().chain(self.past).chain(self.behind)
    }
}

/// The fences that needs still hold on to.
pub(super) fn fences_of(needs: Vec<Need>) -> impl Iterator<Item = Arc<Fence>> {
    needs.into_iter().filter_map(|need| need.fence)
}

impl<G: Gpu> Manager<G> {
    /// Orders the user's later work behind all needs, as far as they are not past already.
    pub(super) fn meet(&self, needs: &[Need], user: Order) -> (Lessons, Option<Obstacle>) {
        let mut lessons = Lessons::default();
        let obstacle = needs.iter().find_map(|need| self.meet_one(need, user, &mut lessons).err());
        (lessons, obstacle)
    }

    fn meet_one(&self, need: &Need, user: Order, lessons: &mut Lessons) -> std::result::Result<(), Obstacle> {
        let fence = self.fence(need, lessons)?;
        if self.are_done(&fence.events).map_err(Obstacle::Broken)? {
            lessons.past.push(fence);
            return Ok(());
        }
        match user {
            Order::Stream(stream) => self.order_behind(stream, &fence).map_err(|_| Obstacle::CannotOrder)?,
            Order::Device => return Err(Obstacle::CannotOrder),
        }
        lessons.behind.push(fence);
        Ok(())
    }

    fn order_behind(&self, stream: StreamId, fence: &Fence) -> Result<()> {
        fence.events.iter().try_for_each(|event| self.gpu.order(stream, event))
    }

    /// The need's fence, recorded now if there is none.
    fn fence(&self, need: &Need, lessons: &mut Lessons) -> std::result::Result<Arc<Fence>, Obstacle> {
        if let Some(fence) = &need.fence {
            return Ok(Arc::clone(fence));
        }
        let events = match need.order {
            Order::Stream(stream) => self.gpu.record(stream).map(|event| vec![event]),
            Order::Device => self.gpu.record_all(),
        };
        let events = events.map_err(|_| Obstacle::CannotRecord(need.order))?;
        let fence = Arc::new(Fence { events, covers: need.marks.clone() });
        lessons.recorded.push(Arc::clone(&fence));
        Ok(fence)
    }

    fn are_done(&self, events: &[Event]) -> Result<bool> {
        for event in events {
            if !self.gpu.is_done(event)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Asks about the needs' events, or waits for them.
    pub(super) fn watch(&self, attempt: &mut Attempt, needs: Vec<Need>, wait: bool) -> Result<()> {
        let obstacles = self.look(needs, wait);
        obstacles.into_iter().try_for_each(|obstacle| attempt.heed(obstacle))
    }

    /// As [`Manager::watch`]; notes what it learned and returns what was in the way.
    pub(super) fn look(&self, needs: Vec<Need>, wait: bool) -> Vec<Obstacle> {
        let mut lessons = Lessons::default();
        let look = |need| self.look_at(need, wait, &mut lessons).err();
        let obstacles = needs.iter().filter_map(look).collect();
        let mut state = self.lock();
        state.counters.waits += u64::from(wait) * needs.len() as u64;
        let told = state.learn(&lessons, Order::Device);
        drop(state);
        self.recycle(lessons.into_iter().chain(told).chain(fences_of(needs)));
        obstacles
    }

    fn look_at(&self, need: &Need, wait: bool, lessons: &mut Lessons) -> std::result::Result<(), Obstacle> {
        let fence = self.fence(need, lessons)?;
        if wait {
            fence.events.iter().try_for_each(|event| self.gpu.wait(event)).map_err(Obstacle::Broken)?;
        }
        if wait || self.are_done(&fence.events).map_err(Obstacle::Broken)? {
            lessons.past.push(fence);
        }
        Ok(())
    }

    /// Asks about the oldest fences when there are many: a program that only ever orders streams behind each other
    /// would pile them up.
    pub(super) fn sweep(&self) {
        let overdue = self.lock().timeline.overdue(FENCES, SWEEP);
        let done = overdue.into_iter().filter(|fence| self.are_done(&fence.events).unwrap_or(false));
        let lessons = Lessons { past: done.collect(), ..Lessons::default() };
        if !lessons.past.is_empty() {
            let told = self.lock().learn(&lessons, Order::Device);
            self.recycle(lessons.into_iter().chain(told));
        }
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
        let needs = state.timeline.last(order);
        drop(state);
        self.look(needs, false);
        let mut state = self.lock();
        state.timeline.retire(stream);
        state.forget_past();
    }
}
