//! Turns of threads in a stream of the program: a copy of several parts stays one copy in its
//! stream, beside the work of other threads.
//!
//! A plain copy is one command, so two threads that copy in one stream are ordered by it. A copy of
//! ours begins in the stream with an event and ends there with waits; a command between them would
//! run beside its parts. So the thread that makes such a copy holds the stream's turn from before
//! the first command until after the last, and copies of other threads wait for it. A turn lasts as
//! long as the calls that enqueue the copy; for pageable memory it lasts as long as the copy. If
//! another thread is making a plain call into the stream, no turn is to be had, and the copy is a
//! plain one too ([`PlainCalls`]).
//!
//! Invariants: a thread that holds a turn waits for nothing that another thread can do only after a
//! turn of its own. A thread never waits for its own turn: a signal handler may run on it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use wm_abi::{CUcontext, CUstream};
use wm_driver::lock;

use crate::arbitration::plain_calls::{PlainCall, PlainCalls, this_thread};
use crate::arbitration::stream_place::StreamPlace;
use crate::vocabulary::stream::ProgramStream;

/// The turns that threads hold now.
#[derive(Debug, Default)]
pub(crate) struct StreamTurns {
    /// Their number, to be read without the lock.
    taken: AtomicUsize,
    turns: Mutex<Vec<(StreamPlace, i32)>>,
    ended: Condvar,
    calls: PlainCalls,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamTurn<'a> {
    turns: &'a StreamTurns,
    turn: (StreamPlace, i32),
}

impl StreamTurns {
    /// Does any thread hold a turn? One load.
    pub(crate) fn any(&self) -> bool {
        // In one order with the entries of calls.
        self.taken.load(Ordering::SeqCst) > 0
    }

    /// Reserves the turn, after the turns of other threads. `None`: another thread is making a
    /// plain call there, which might come in between the parts of a copy.
    pub(crate) fn take(&self, user: &ProgramStream) -> Option<StreamTurn<'_>> {
        self.take_by(this_thread(), user)
    }

    fn take_by(&self, thread: i32, user: &ProgramStream) -> Option<StreamTurn<'_>> {
        let turn = (StreamPlace::of(user), thread);
        let mut turns = self.wait(self.lock(), turn);
        // Before the calls are looked for, so that a call that begins later sees the turn.
        self.taken.fetch_add(1, Ordering::SeqCst);
        if self.calls.meet(thread, &turn.0) {
            self.taken.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        turns.push(turn);
        Some(StreamTurn { turns: self, turn })
    }

    /// The calling thread is about to make a plain call, and asks next whether there are turns. The
    /// context is null if it is not known.
    pub(crate) fn enter(&self, stream: CUstream, context: CUcontext) -> PlainCall<'_> {
        self.calls.enter(this_thread(), stream, context)
    }

    /// The calling thread's call into a stream makes no plain call until it [follows](Self::follow)
    /// the turns there.
    pub(crate) fn decide(&self, user: &ProgramStream) {
        self.calls.decide(this_thread(), user.stream);
    }

    /// Waits for the turns of other threads. The calling thread may make plain calls again: its
    /// entry is calling before a further turn can be taken.
    pub(crate) fn follow(&self, user: &ProgramStream) {
        self.follow_by(this_thread(), user);
    }

    fn follow_by(&self, thread: i32, user: &ProgramStream) {
        let place = StreamPlace::of(user);
        self.calls.decide(thread, user.stream);
        let turns = self.wait(self.lock(), (place, thread));
        self.calls.resume(thread, &place);
        drop(turns);
    }

    fn wait<'a>(
        &'a self,
        mut turns: MutexGuard<'a, Vec<(StreamPlace, i32)>>,
        (place, thread): (StreamPlace, i32),
    ) -> MutexGuard<'a, Vec<(StreamPlace, i32)>> {
        while turns.iter().any(|(other, of)| *of != thread && other.meets(&place)) {
            turns = self.ended.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        turns
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(StreamPlace, i32)>> {
        lock(&self.turns)
    }
}

impl Drop for StreamTurn<'_> {
    fn drop(&mut self) {
        let mut turns = self.turns.lock();
        if let Some(position) = turns.iter().position(|turn| *turn == self.turn) {
            turns.swap_remove(position);
            self.turns.taken.fetch_sub(1, Ordering::AcqRel);
        }
        drop(turns);
        self.turns.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (deadlock): a thread waits for its own turn, or for a stream that has nothing to do
    //! with it.
    use std::sync::mpsc;

    use super::*;
    use crate::vocabulary::stream::StreamOrdering;

    #[test]
    fn another_thread_comes_behind_and_the_same_one_does_not_wait() {
        let turns = StreamTurns::default();
        let (told, hears) = mpsc::channel();
        std::thread::scope(|scope| {
            let mine = turns.take(&ProgramStream::of_test(7, StreamOrdering::Alone)).expect("no call");
            turns.follow(&ProgramStream::of_test(7, StreamOrdering::Alone));
            let again = turns.take(&ProgramStream::of_test(7, StreamOrdering::Alone));
            let turns = &turns;
            scope.spawn(move || {
                // Another stream.
                drop(turns.take(&ProgramStream::of_test(8, StreamOrdering::Alone)));
                told.send("beside").expect("the test listens");
                drop(turns.take(&ProgramStream::of_test(7, StreamOrdering::Alone)));
                told.send("behind").expect("the test listens");
            });
            assert_eq!(hears.recv(), Ok("beside"));
            drop(again);
            assert!(hears.try_recv().is_err(), "the turn is not over");
            drop(mine);
            assert_eq!(hears.recv(), Ok("behind"));
        });
        assert!(!turns.any());
    }

    /// Two threads of one stream: one makes a plain call, the other a copy of several parts.
    struct Schedule<'a> {
        turns: &'a StreamTurns,
        call: Option<PlainCall<'a>>,
        turn: Option<StreamTurn<'a>>,
        /// The commands in the stream's order.
        stream: Vec<&'static str>,
    }

    const CALLER: i32 = -1;
    const COPIER: i32 = -2;

    impl Schedule<'_> {
        /// The caller's next step. `false`: it waits for a turn.
        fn call(&mut self, step: usize, user: &ProgramStream) -> bool {
            match step {
                0 => self.call = Some(self.turns.calls.enter(CALLER, user.stream, CUcontext::NULL)),
                1 if self.turn.is_some() => {
                    assert!(self.turns.any(), "the caller sees the turn");
                    return false;
                }
                1 => self.turns.follow_by(CALLER, user),
                2 => self.stream.push("call"),
                _ => self.call = None,
            }
            true
        }

        fn copy(&mut self, step: usize, user: &ProgramStream) {
            match step {
                0 => self.turn = self.turns.take_by(COPIER, user),
                1 | 2 if self.turn.is_some() => self.stream.push(if step == 1 { "head" } else { "body" }),
                1 => self.stream.push("plain"),
                2 => {}
                _ => self.turn = None,
            }
        }
    }

    /// The stream's commands if the copier makes its steps where a bit of `order` is set.
    fn commands(order: u8) -> Vec<&'static str> {
        let (turns, user) = (StreamTurns::default(), ProgramStream::of_test(7, StreamOrdering::Blocking));
        let mut schedule = Schedule { turns: &turns, call: None, turn: None, stream: Vec::new() };
        let (mut called, mut copied) = (0, 0);
        for bit in (0..8).cycle() {
            let copies = called == 4 || (copied < 4 && order & 1 << bit != 0);
            if !copies && schedule.call(called, &user) {
                called += 1;
            } else if copied < 4 {
                schedule.copy(copied, &user);
                copied += 1;
            } else {
                break;
            }
        }
        assert!(!turns.any());
        schedule.stream
    }

    #[test]
    fn no_schedule_of_a_plain_call_puts_it_between_the_parts_of_a_copy() {
        let all: Vec<_> = (0..=u8::MAX).filter(|order| order.count_ones() == 4).map(commands).collect();
        for stream in &all {
            let whole =
                [["head", "body", "call"], ["call", "head", "body"]].iter().any(|one| one == &stream[..]);
            assert!(whole || stream.len() == 2, "{stream:?}");
        }
        for seen in [&["head", "body", "call"][..], &["call", "head", "body"], &["plain", "call"]] {
            assert!(all.iter().any(|stream| stream == seen), "{seen:?}");
        }
    }
}
