//! Plain calls into streams that threads are making now.
//!
//! A plain call asks whether another thread holds the stream's turn, and then calls the driver. A
//! copy of several parts could begin between the two. So a plain call has an entry here from before
//! it asks until the driver has returned. A thread that takes a turn looks for entries afterwards.
//! Each side writes before it reads, in one order that all threads agree on, so at least one of the
//! two sees the other: the call waits for the turn, or the copy is a plain one. A copy never waits
//! for an entry.
//!
//! An entry has two states. If it is *calling*, its call may be anywhere in the driver. If it is
//! *deciding*, its thread makes no plain call: it waits for a turn, or makes a copy that may itself
//! have several parts.
//!
//! A thread that is cancelled in the driver, or ends there, leaves its entry behind. The entry is
//! removed when a copy meets it.

use std::cell::Cell;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use wm_abi::{CUcontext, CUstream};
use wm_driver::thread::KernelThread;

use crate::arbitration::stream_place::StreamPlace;

/// Entries that can be told apart. Calls beyond that are only counted, and meet every copy.
const ENTRIES: usize = 64;

/// No call has the entry. No stream has this handle: a null one is passed under its own name.
const FREE: usize = 0;

/// The state of an entry that is not calling. No stream has this handle.
const DECIDING: usize = usize::MAX;

/// A number that no other thread has while this one lives. It needs no work when the thread ends. A
/// forked child, which makes no copies, may have its parent's.
pub(crate) fn this_thread() -> i32 {
    thread_local! {
        /// No destructor, so there at any time of a thread's life.
        static NUMBER: Cell<i32> = const { Cell::new(0) };
    }
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(KernelThread::current().number());
        }
        number.get()
    })
}

/// One cache line, so that threads do not share any.
#[derive(Debug, Default)]
#[repr(align(64))]
struct CallEntry {
    /// The call's stream, [`FREE`] or [`DECIDING`]. A free entry has zeros in the other fields.
    stream: AtomicUsize,
    /// 0 until the thread has written it.
    thread: AtomicI32,
    /// 0 if it is not known.
    context: AtomicUsize,
}

impl CallEntry {
    fn claim(&self, thread: i32, stream: CUstream, context: CUcontext) -> bool {
        let is_ours =
            self.stream.compare_exchange(FREE, stream.0, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        if is_ours {
            // Until these are written, the entry meets more copies than it has to.
            self.thread.store(thread, Ordering::Relaxed);
            self.context.store(context.0, Ordering::Relaxed);
        }
        is_ours
    }

    fn release(&self) {
        self.thread.store(0, Ordering::Relaxed);
        self.context.store(0, Ordering::Relaxed);
        self.stream.store(FREE, Ordering::Release);
    }

    /// May the call of another thread land in the middle of a copy there?
    fn meets(&self, thread: i32, place: &StreamPlace) -> bool {
        let stream = self.stream.load(Ordering::SeqCst);
        let owner = self.thread.load(Ordering::Relaxed);
        let context = CUcontext(self.context.load(Ordering::Relaxed));
        let is_calling = stream != FREE && stream != DECIDING && owner != thread;
        is_calling && place.meets_call(CUstream(stream), context) && !self.remove_left_behind(owner)
    }

    /// Removes the entry of a thread that has ended. Only one thread at a time does so.
    fn remove_left_behind(&self, owner: i32) -> bool {
        let has_ended = owner != 0 && KernelThread::numbered(owner).has_ended();
        // A thread that released its entry before it ended has taken its number away.
        let is_left = has_ended && self.thread.load(Ordering::Relaxed) == owner;
        if is_left {
            self.release();
        }
        is_left
    }
}

/// The entries of a process.
#[derive(Debug)]
pub(crate) struct PlainCalls {
    /// On the heap: the thread that makes the engine may have little stack.
    entries: Box<[CallEntry]>,
    /// Calls that found no entry.
    beyond: AtomicUsize,
}

impl Default for PlainCalls {
    fn default() -> Self {
        let entries = (0..ENTRIES).map(|_| CallEntry::default()).collect();
        Self { entries, beyond: AtomicUsize::new(0) }
    }
}

impl PlainCalls {
    /// Makes an entry that is calling. The thread must then ask for turns.
    #[inline]
    pub(crate) fn enter(&self, thread: i32, stream: CUstream, context: CUcontext) -> PlainCall<'_> {
        let first = thread.unsigned_abs() as usize;
        let mut entries = (0..ENTRIES).map(|step| &self.entries[first.wrapping_add(step) % ENTRIES]);
        let entry = entries.find(|entry| entry.claim(thread, stream, context));
        if entry.is_none() {
            self.beyond.fetch_add(1, Ordering::SeqCst);
        }
        PlainCall { calls: self, entry }
    }

    /// Is another thread making a plain call that may land in the middle of a copy there? The
    /// calling thread must have announced its turn.
    pub(crate) fn meet(&self, thread: i32, place: &StreamPlace) -> bool {
        self.beyond.load(Ordering::SeqCst) > 0 || self.entries.iter().any(|entry| entry.meets(thread, place))
    }

    /// The thread's calls into a stream are deciding from here on.
    pub(crate) fn decide(&self, thread: i32, stream: CUstream) {
        self.of(thread, stream.0).for_each(|entry| entry.stream.store(DECIDING, Ordering::Release));
    }

    /// The thread's calls that were deciding go into a stream. No other thread may take a turn
    /// meanwhile.
    pub(crate) fn resume(&self, thread: i32, place: &StreamPlace) {
        for entry in self.of(thread, DECIDING) {
            entry.context.store(place.context.0, Ordering::Relaxed);
            entry.stream.store(place.stream.0, Ordering::SeqCst);
        }
    }

    fn of(&self, thread: i32, stream: usize) -> impl Iterator<Item = &CallEntry> {
        let is_it = move |entry: &&CallEntry| {
            entry.thread.load(Ordering::Relaxed) == thread && entry.stream.load(Ordering::Relaxed) == stream
        };
        self.entries.iter().filter(is_it)
    }
}

/// A plain call that is being made, until it is dropped.
#[derive(Debug)]
pub struct PlainCall<'a> {
    calls: &'a PlainCalls,
    entry: Option<&'a CallEntry>,
}

impl Drop for PlainCall<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.entry {
            Some(entry) => entry.release(),
            None => drop(self.calls.beyond.fetch_sub(1, Ordering::Release)),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (data race): a copy of several parts does not see a plain call of another thread. Or
    //! a call that is over keeps copies from using several links.
    use super::*;
    use crate::vocabulary::stream::StreamOrdering::{self, Alone, Blocking, Legacy};

    const CONTEXT: CUcontext = CUcontext(1);

    fn place(stream: CUstream, kind: StreamOrdering) -> StreamPlace {
        StreamPlace { context: CONTEXT, stream, kind }
    }

    #[test]
    fn a_call_meets_copies_until_it_is_over_and_not_those_of_its_own_thread() {
        let (calls, me, other) = (PlainCalls::default(), this_thread(), 0);
        let seven = place(CUstream(7), Alone);
        let call = calls.enter(me, CUstream(7), CUcontext::NULL);
        let inner = calls.enter(me, CUstream(7), CUcontext::NULL);
        assert!(calls.meet(other, &seven) && !calls.meet(me, &seven));
        calls.decide(me, CUstream(7));
        assert!(!calls.meet(other, &seven), "it makes no plain call");
        calls.resume(me, &seven);
        drop(inner);
        assert!(calls.meet(other, &seven), "the outer one goes on");
        drop(call);
        assert!(!calls.meet(other, &seven));
    }

    #[test]
    fn calls_meet_copies_whose_stream_may_wait_for_them() {
        let meets = |stream, context, copy| {
            let calls = PlainCalls::default();
            let _call = calls.enter(this_thread(), stream, context);
            calls.meet(0, &copy)
        };
        let (seven, other) = (CUstream(7), CUcontext(2));
        assert!(meets(CUstream::LEGACY, CONTEXT, place(seven, Blocking)));
        assert!(!meets(CUstream::LEGACY, other, place(seven, Blocking)));
        assert!(!meets(CUstream::LEGACY, CONTEXT, place(seven, Alone)));
        assert!(meets(CUstream::PER_THREAD, CONTEXT, place(CUstream::LEGACY, Legacy)));
        assert!(!meets(CUstream::PER_THREAD, CONTEXT, place(CUstream::PER_THREAD, Blocking)));
        assert!(meets(seven, CUcontext::NULL, place(CUstream::LEGACY, Legacy)), "its kind is not known");
        assert!(!meets(seven, CUcontext::NULL, place(CUstream(8), Blocking)));
    }

    #[test]
    fn calls_without_an_entry_meet_every_copy() {
        let calls = PlainCalls::default();
        let made: Vec<_> = (0..=ENTRIES).map(|_| calls.enter(this_thread(), CUstream(7), CONTEXT)).collect();
        let apart = place(CUstream(8), Alone);
        assert!(calls.meet(0, &apart));
        drop(made);
        assert!(!calls.meet(0, &apart));
    }

    #[test]
    fn the_entry_of_a_thread_that_has_ended_is_removed() {
        let calls = PlainCalls::default();
        let end = || {
            // As when the thread is cancelled in the driver.
            std::mem::forget(calls.enter(this_thread(), CUstream(7), CONTEXT));
            this_thread()
        };
        let number = std::thread::scope(|scope| scope.spawn(end).join().expect("it ends"));
        while !KernelThread::numbered(number).has_ended() {
            std::thread::yield_now();
        }
        assert!(!calls.meet(0, &place(CUstream(7), Alone)));
        assert!(calls.entries.iter().all(|entry| entry.stream.load(Ordering::Relaxed) == FREE));
    }
}
