//! The GPU's progress as far as it is known: which frees are past, which events will tell.
//!
//! * A *clock* per order numbers its frees and remembers up to which number the GPU has passed.
//! * A *fence* is a set of recorded events. Once all of them are done, a clock is past up to a
//!   number.
//! * A stream that was made to wait for a fence, on the GPU, may use the memory that the
//!   fence covers although the host has not seen it pass.
//!
//! A free of a large block has a number of its own and an event recorded with it: its fence is
//! *exact*, and a stream may be ordered behind it, because all it waits for came before the free.
//! Small frees share numbers. Their event is recorded later than they are, behind work unrelated to
//! them: such a fence is only queried, and no stream is ordered behind it.
//!
//! Pure data: nothing here calls the driver.
//!
//! A program may use a stream for one block and end it, a hundred thousand times. So a clock goes
//! as soon as all its frees are past, and the fences and waiters that go with it are found by its
//! order: nothing is searched. Of a stream that has ended, and of a thread's own one, no wait tells
//! how far it has come; their fences stand in a queue of their own, of which a few are asked each
//! time that one joins it.
//!
//! Invariants: a point is reported past only if the host knows that the GPU passed it. A clock that
//! is not known counts as past: it never had a free, or all of them are past. Numbers never come
//! again, so a mark or a fence of a clock that went tells nothing of the next one of its order. A
//! fence that is noted is of a clock, and has something to tell of it.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use rustc_hash::FxHashMap;
use wm_driver::StreamId;

use crate::containers::table::ProbingTable;
use crate::ordering::clock::StreamClock;
use crate::ordering::fence::{Fence, Marks, Numbered, Query};
use crate::vocabulary::order::{Order, Pending, Point};
use crate::vocabulary::sizes::{FENCES, POLLED, RECORDED};

#[derive(Debug, Default)]
pub(crate) struct Timeline {
    clocks: ProbingTable<StreamClock>,
    /// The number of the latest free of all: no two clocks share one.
    latest: u64,
    /// By order, in the order in which they were recorded.
    fences: FxHashMap<Order, Vec<Arc<Fence>>>,
    /// Fences of streams that have ended, and of threads' own ones; some have nothing to tell any
    /// more.
    polled: VecDeque<Weak<Fence>>,
    /// By order: the streams that wait for a free of it, and the last free that the waiter's later
    /// work comes after. Waiters that have ended stay until the order has passed that free.
    behind: FxHashMap<Order, Vec<(StreamId, u64)>>,
    /// The first stream that asked for memory or freed some.
    first: Option<StreamId>,
    /// Another stream has, too. An order that names no stream does not count: it cannot be ordered
    /// behind an event.
    several: bool,
    /// Which life this is: with the device's contexts everything is forgotten.
    life: u64,
    /// Where among the clocks the next round of queries begins.
    turn: usize,
    /// A clock has passed a point since [`Timeline::has_dropped`] was last asked.
    dropped: bool,
}

impl Timeline {
    /// An order asks for memory, or frees some for the first time.
    pub(crate) fn note_user(&mut self, order: Order) {
        if let Order::Stream(stream) = order {
            self.several |= *self.first.get_or_insert(stream) != stream;
        }
    }

    /// Numbers a free of `bytes`. `eager`: no event can be recorded in this order later.
    pub(crate) fn freed(&mut self, order: Order, bytes: u64, eager: bool) -> Numbered {
        let (mut fresh, latest) = (false, &mut self.latest);
        let clock = self.clocks.get_or_insert(order, || {
            fresh = true;
            StreamClock::new(order, *latest)
        });
        if fresh && let Order::Stream(stream) = order {
            self.several |= *self.first.get_or_insert(stream) != stream;
        }
        let life = self.life;
        let mut next = || {
            *latest += 1;
            *latest
        };
        if eager || self.several && bytes >= RECORDED {
            clock.freed = next();
            (clock.open, clock.unrecorded, clock.eager) = (false, 0, eager);
            return Numbered { number: clock.freed, life, record: Some(true) };
        }
        if !clock.open {
            clock.freed = next();
        }
        clock.open = true;
        let number = clock.freed;
        // If one stream uses the memory, its progress is not needed.
        clock.unrecorded += if self.several { bytes } else { 0 };
        if clock.unrecorded < RECORDED {
            return Numbered { number, life, record: None };
        }
        (clock.open, clock.unrecorded) = (false, 0);
        Numbered { number, life, record: Some(false) }
    }

    pub(crate) fn is_past(&self, (order, number): Point) -> bool {
        self.clocks.get(order).is_none_or(|clock| clock.past >= number)
    }

    pub(crate) fn all_past(&self, pending: &Pending) -> bool {
        pending.points().iter().all(|point| self.is_past(*point))
    }

    /// May later work of `user` touch what waits for `point`, with no further call?
    fn is_behind(&self, user: Order, point: Point) -> bool {
        let (order, number) = point;
        let Order::Stream(stream) = user else { return self.is_past(point) };
        user == order || self.waits(stream, point) || self.is_past((order, number))
    }

    fn waits(&self, stream: StreamId, (order, number): Point) -> bool {
        let waiters = self.behind.get(&order).map_or(&[][..], Vec::as_slice);
        waiters.iter().any(|(waiter, upto)| *waiter == stream && *upto >= number)
    }

    pub(crate) fn is_ready(&self, user: Order, pending: &Pending) -> bool {
        pending.points().iter().all(|point| self.is_behind(user, *point))
    }

    /// Would waiting for exact fences make `pending` usable for `user`?
    pub(crate) fn can_be_ordered(&self, user: Order, pending: &Pending) -> bool {
        let is_exact = |point: &Point| self.is_behind(user, *point) || self.exact(*point).is_some();
        !pending.is_blurred() && pending.points().iter().all(is_exact)
    }

    /// The fences of an order, the oldest first.
    fn fences_of(&self, order: Order) -> &[Arc<Fence>] {
        self.fences.get(&order).map_or(&[], Vec::as_slice)
    }

    fn exact(&self, (order, number): Point) -> Option<&Arc<Fence>> {
        self.fences_of(order).iter().find(|fence| fence.exact && fence.upto == number)
    }

    /// The fences that `user` must be ordered behind before it may touch the memory that is
    /// `pending`; `None` where a fence is missing, because it was given up since.
    pub(crate) fn needs(&self, user: Order, pending: &Pending) -> Option<Vec<Arc<Fence>>> {
        let open = pending.points().iter().filter(|point| !self.is_behind(user, **point));
        open.map(|point| self.exact(*point).cloned()).collect()
    }

    /// Is there any other order that `user` could be ordered behind?
    pub(crate) fn has_exact(&self, user: Order) -> bool {
        let mut others = self.fences.iter().filter(|(order, _)| **order != user);
        others.any(|(_, own)| own.iter().any(|fence| fence.exact))
    }

    /// The fences that tell when the `pending` frees that are not past will be.
    pub(crate) fn awaited(&self, pending: &Pending) -> Vec<Arc<Fence>> {
        let open = pending.points().iter().filter(|point| !self.is_past(**point));
        let telling = |(order, number): &Point| {
            self.fences_of(*order).iter().find(|fence| fence.upto >= *number).cloned()
        };
        open.filter_map(telling).collect()
    }

    /// Queries that tell more about clocks other than `user`'s, at most `most` of them. Round
    /// robin: the next call begins with others.
    pub(crate) fn queries(&mut self, user: Option<Order>, most: usize) -> Vec<Query> {
        let clocks = self.clocks.iter().filter(|clock| clock.is_behind() && Some(clock.order) != user);
        let mut open: Vec<(Order, u64, bool)> =
            clocks.map(|clock| (clock.order, clock.freed, clock.retired)).collect();
        if open.len() > most {
            self.turn = (self.turn + most) % open.len();
            open.rotate_left(self.turn);
            open.truncate(most);
        }
        let mut queries = Vec::new();
        for (order, freed, retired) in open {
            let mut own = self.fences_of(order).iter();
            let (oldest, newest) = (own.next(), own.next_back());
            queries.extend(oldest.into_iter().chain(newest).cloned().map(Query::Ask));
            let told = newest.or(oldest).map_or(0, |fence| fence.upto);
            if told < freed && !retired && order != Order::Device {
                queries.push(Query::Record { order, upto: freed, life: self.life });
            }
        }
        queries.iter().for_each(|query| self.close(query));
        queries
    }

    fn close(&mut self, query: &Query) {
        if let Query::Record { order, .. } = query
            && let Some(clock) = self.clocks.get_mut(*order)
        {
            clock.close();
        }
    }

    /// Queries about orders that no wait covers, a few, those first that were not asked for
    /// longest. To be made wherever a fence of such an order was noted: then no more are left than
    /// the GPU is behind with.
    pub(crate) fn polls(&mut self) -> Vec<Query> {
        let mut queries = Vec::new();
        for _ in 0..self.polled.len() {
            let Some(fence) = self.polled.pop_front().and_then(|fence| fence.upgrade()) else { continue };
            if fence.life != self.life || self.is_past((fence.order, fence.upto)) {
                continue;
            }
            self.polled.push_back(Arc::downgrade(&fence));
            queries.push(Query::Ask(fence));
            if queries.len() == POLLED {
                break;
            }
        }
        queries
    }

    /// Closes the clock of an order that is about to end. Returns the event still to be recorded in
    /// it, if it has frees that no fence covers.
    pub(crate) fn last(&mut self, order: Order) -> Option<Query> {
        let told = self.fences_of(order).last().map_or(0, |fence| fence.upto);
        let clock = self.clocks.get_mut(order).filter(|clock| clock.is_behind())?;
        let (_, freed) = clock.close();
        (told < freed).then_some(Query::Record { order, upto: freed, life: self.life })
    }

    /// The frees that a host wait covers: all up to now of the streams that `covers` names.
    pub(crate) fn marks(&mut self, covers: impl Fn(StreamId) -> bool) -> Marks {
        let covered = |order: Order| order.stream().is_some_and(&covers);
        let clocks = self.clocks.iter_mut().filter(|clock| covered(clock.order));
        Marks { points: clocks.map(StreamClock::close).collect(), life: self.life }
    }

    /// All frees up to now, in streams and in the order of the device: those that are past once the
    /// whole device has nothing left to do.
    pub(crate) fn everything(&mut self) -> Marks {
        Marks { points: self.clocks.iter_mut().map(StreamClock::close).collect(), life: self.life }
    }

    /// All frees up to now of one stream.
    pub(crate) fn mark(&mut self, stream: StreamId) -> Marks {
        let clock = self.clocks.get_mut(Order::Stream(stream));
        Marks { points: clock.map(StreamClock::close).into_iter().collect(), life: self.life }
    }

    /// Notes a fence. Returns one that is given up for it, where an order has too many: they would
    /// pile up behind a stream that makes no progress; or the fence itself, where it has nothing to
    /// tell: its frees are past, or of an earlier life.
    #[must_use = "its events are to be recycled, outside the lock"]
    pub(crate) fn add_fence(&mut self, fence: &Arc<Fence>) -> Option<Arc<Fence>> {
        let clock = self.clocks.get_mut(fence.order).filter(|clock| clock.past < fence.upto);
        let Some(clock) = clock.filter(|_| fence.life == self.life) else { return Some(Arc::clone(fence)) };
        if fence.upto == clock.freed && !clock.open {
            clock.unrecorded = 0;
        }
        if clock.retired || clock.eager {
            self.polled.push_back(Arc::downgrade(fence));
        }
        let own = self.fences.entry(fence.order).or_default();
        own.push(Arc::clone(fence));
        // The oldest tells of progress soonest, and the newest of all frees.
        (own.len() > FENCES).then(|| own.remove(1))
    }

    /// The oldest fence of an order that has several.
    pub(crate) fn overdue(&self, order: Order) -> Option<Arc<Fence>> {
        self.fences_of(order).first().filter(|_| self.fences_of(order).len() > 1).cloned()
    }

    /// `stream` now waits for the fence on the GPU.
    pub(crate) fn now_behind(&mut self, stream: StreamId, fence: &Fence) {
        if self.is_past((fence.order, fence.upto)) {
            return;
        }
        let waiters = self.behind.entry(fence.order).or_default();
        match waiters.iter_mut().find(|(waiter, _)| *waiter == stream) {
            Some((_, upto)) => *upto = (*upto).max(fence.upto),
            None => waiters.push((stream, fence.upto)),
        }
    }

    /// The host has seen these fences done.
    pub(crate) fn done(&self, fences: &[Arc<Fence>]) -> Marks {
        let own = fences.iter().filter(|fence| fence.life == self.life);
        Marks { points: own.map(|fence| (fence.order, fence.upto)).collect(), life: self.life }
    }

    /// The host knows that these points are past. Returns the fences that have nothing left to
    /// tell.
    #[must_use = "their events are to be recycled, outside the lock"]
    pub(crate) fn reached(&mut self, marks: &Marks) -> Vec<Arc<Fence>> {
        let mut told = Vec::new();
        let points = if marks.life == self.life { &marks.points[..] } else { &[] };
        for point in points {
            self.reach(*point, &mut told);
        }
        told
    }

    fn reach(&mut self, (order, number): Point, told: &mut Vec<Arc<Fence>>) {
        let Some(clock) = self.clocks.get_mut(order) else { return };
        if clock.past >= number {
            return;
        }
        clock.past = number;
        self.dropped = true;
        if !clock.is_behind() {
            return self.drop_clock(order, told);
        }
        if let Some(own) = self.fences.get_mut(&order) {
            told.extend(own.extract_if(.., |fence| fence.upto <= number));
        }
        if let Some(waiters) = self.behind.get_mut(&order) {
            waiters.retain(|(_, upto)| *upto > number);
        }
    }

    /// All frees of an order are past: nothing has to be remembered of it.
    fn drop_clock(&mut self, order: Order, told: &mut Vec<Arc<Fence>>) {
        self.clocks.remove(order);
        self.behind.remove(&order);
        told.extend(self.fences.remove(&order).into_iter().flatten());
    }

    /// Has anything passed, so that points that name it only cost time?
    pub(crate) fn has_dropped(&mut self) -> bool {
        std::mem::take(&mut self.dropped)
    }

    /// The stream is about to be destroyed: nothing can be recorded in it any more.
    pub(crate) fn retire(&mut self, stream: StreamId) {
        let order = Order::Stream(stream);
        if let Some(clock) = self.clocks.get_mut(order) {
            clock.retired = true;
            // The newest tells of all frees.
            self.polled.extend(self.fences_of(order).last().map(Arc::downgrade));
        }
    }

    /// Forgets everything; the fences are the caller's.
    pub(crate) fn clear(&mut self) -> Vec<Arc<Fence>> {
        self.life += 1;
        self.clocks = ProbingTable::default();
        self.behind.clear();
        self.polled.clear();
        std::mem::take(&mut self.fences).into_values().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Order = Order::Stream(StreamId(1));
    const T: Order = Order::Stream(StreamId(2));
    const LARGE: u64 = RECORDED;

    fn fence(order: Order, upto: u64, exact: bool) -> Arc<Fence> {
        Arc::new(Fence { events: Vec::new(), order, upto, exact, life: 0 })
    }

    /// One that several streams use.
    fn shared() -> Timeline {
        let mut timeline = Timeline::default();
        [S, T].into_iter().for_each(|order| timeline.note_user(order));
        timeline
    }

    fn free(timeline: &mut Timeline, order: Order, bytes: u64) -> Pending {
        Pending::at((order, timeline.freed(order, bytes, false).number))
    }

    #[test]
    fn a_stream_reuses_its_own_memory_at_once_and_others_need_an_exact_fence() {
        let mut timeline = shared();
        let pending = free(&mut timeline, S, LARGE);
        assert!(timeline.is_ready(S, &pending));
        assert!(!timeline.is_ready(T, &pending) && !timeline.can_be_ordered(T, &pending));
        assert!(timeline.add_fence(&fence(S, 1, true)).is_none());
        assert!(timeline.can_be_ordered(T, &pending) && !timeline.is_ready(Order::Device, &pending));
        assert_eq!(timeline.needs(T, &pending).map(|needs| needs.len()), Some(1));
    }

    /// Hazard: a stream waits for work that came after the free of the memory that it gets.
    #[test]
    fn small_frees_share_a_number_and_nobody_is_ordered_behind_what_came_after_them() {
        let mut timeline = shared();
        let (first, second) = (free(&mut timeline, S, 512), free(&mut timeline, S, 512));
        assert_eq!(first, second);
        let large = timeline.freed(S, LARGE, false);
        assert_eq!((large.number, large.record), (2, Some(true)));
        assert!(timeline.add_fence(&fence(S, 2, true)).is_none());
        assert!(!timeline.can_be_ordered(T, &first));
        let done = timeline.done(&[fence(S, 2, true)]);
        assert_eq!(timeline.reached(&done).len(), 1, "but asked, the fence tells of them");
        assert!(timeline.is_ready(T, &first));
    }

    /// Hazard: memory that is freed while the host waits counts as past when it has waited.
    #[test]
    fn a_mark_covers_what_was_freed_before_it_and_nothing_later() {
        let mut timeline = shared();
        let early = free(&mut timeline, S, 512);
        let mark = timeline.mark(StreamId(1));
        let late = free(&mut timeline, S, 512);
        assert!(timeline.reached(&mark).is_empty());
        assert!(timeline.is_ready(T, &early) && !timeline.is_ready(T, &late));
    }

    #[test]
    fn many_small_frees_are_recorded_together() {
        let mut timeline = shared();
        timeline.note_user(T);
        let records: Vec<_> = (0..4).map(|_| timeline.freed(S, RECORDED / 2, false).record).collect();
        assert_eq!(records, [None, Some(false), None, Some(false)]);
    }

    #[test]
    fn a_retired_stream_without_a_fence_is_waited_for_with_its_context_only() {
        let mut timeline = shared();
        let pending = free(&mut timeline, S, LARGE);
        timeline.retire(StreamId(1));
        assert!(timeline.queries(None, 8).is_empty() && !timeline.can_be_ordered(T, &pending));
        let marks = timeline.marks(|_| true);
        assert!(timeline.reached(&marks).is_empty());
        assert!(timeline.is_ready(T, &pending));
    }

    /// Hazard: a wait that began before a context ended tells of memory that was freed after it.
    #[test]
    fn what_an_earlier_life_learned_tells_nothing_of_this_one() {
        let mut timeline = shared();
        let early = timeline.freed(S, LARGE, false);
        let (mark, old) = (timeline.mark(StreamId(1)), fence(S, early.number, true));
        drop(timeline.clear());
        let pending = free(&mut timeline, S, LARGE);
        assert!(timeline.add_fence(&old).is_some(), "it is given back");
        let done = timeline.done(&[old]);
        assert!(timeline.reached(&mark).is_empty() && timeline.reached(&done).is_empty());
        assert!(!timeline.is_ready(T, &pending));
    }

    #[test]
    fn questions_go_round_and_never_concern_the_asker() {
        let mut timeline = shared();
        (1..=6).for_each(|name| drop(free(&mut timeline, Order::Stream(StreamId(name)), LARGE)));
        let mut asked: Vec<u64> = Vec::new();
        for _ in 0..3 {
            let queries = timeline.queries(Some(S), 2);
            asked.extend(queries.iter().map(|query| match query {
                Query::Record { order, .. } => order.stream().expect("a stream").0,
                Query::Ask(_) => panic!("no fence was noted"),
            }));
        }
        asked.sort_unstable();
        asked.dedup();
        assert!(asked.len() >= 4 && !asked.contains(&1), "{asked:?}");
    }

    /// Hazard: a program with many short-lived streams, and books that grow with each of them.
    #[test]
    fn streams_that_have_ended_leave_nothing_once_their_frees_are_past() {
        let mut timeline = shared();
        for name in (10..1000).map(StreamId) {
            let number = timeline.freed(Order::Stream(name), LARGE, false).number;
            let told = fence(Order::Stream(name), number, true);
            assert!(timeline.add_fence(&told).is_none());
            timeline.now_behind(StreamId(1), &told);
            timeline.retire(name);
            let done = timeline.done(&[told]);
            assert_eq!(timeline.reached(&done).len(), 1);
        }
        assert!(timeline.fences.is_empty() && timeline.behind.is_empty());
        assert_eq!(timeline.clocks.iter().filter(|clock| clock.retired).count(), 0);
    }

    #[test]
    fn fences_of_a_stream_that_stands_still_do_not_pile_up() {
        let mut timeline = shared();
        let numbers = (0..4 * FENCES).map(|_| timeline.freed(S, LARGE, false).number).collect::<Vec<_>>();
        let given_up: Vec<_> =
            numbers.iter().filter_map(|number| timeline.add_fence(&fence(S, *number, true))).collect();
        assert_eq!(given_up.len(), 3 * FENCES);
        assert!(given_up.iter().all(|fence| fence.upto != 1 && fence.upto != 4 * FENCES as u64));
    }
}
