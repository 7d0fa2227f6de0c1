//! Turns of threads in a stream of the program: a copy of several parts is one in its stream,
//! whatever other threads put there.
//!
//! The plain copy is one command, so of two that two threads put into one stream one comes first. A
//! copy of ours begins in the stream with an event and ends there with waits; what comes between
//! would run beside its parts. So a thread that makes such a copy has the stream's turn from before
//! the first command until behind the last, and other threads' copies wait for it. A turn lasts as
//! long as the calls that enqueue the copy, and for pageable memory as long as the copy.
//!
//! Invariants: a thread that has a turn waits for nothing that another thread may only do after it
//! has had one. The thread that has it never waits for itself: a handler of a signal may be running
//! on it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use wm_abi::{CUcontext, CUstream};

use crate::vocabulary::stream::{ProgramStream, StreamOrdering};

/// A stream, as far as others may be the same one or wait for its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StreamPlace {
    context: CUcontext,
    stream: CUstream,
    kind: StreamOrdering,
}

impl StreamPlace {
    fn of(user: &ProgramStream) -> Self {
        Self { context: user.home.context, stream: user.stream, kind: user.kind }
    }

    /// Does work in one wait for work in the other? A per-thread handle is another stream in each
    /// thread.
    fn meets(&self, other: &Self) -> bool {
        use StreamOrdering::{Blocking, Legacy};
        let is_same = self.stream == other.stream && self.stream != CUstream::PER_THREAD;
        let waits = matches!((self.kind, other.kind), (Legacy, Blocking) | (Blocking, Legacy));
        self.context == other.context && (is_same || waits)
    }
}

/// A number that no other thread has while this one lives. Unlike the standard library's, it leaves
/// nothing to be done at the thread's end.
fn this_thread() -> usize {
    thread_local! {
        static MARK: u8 = const { 0 };
    }
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// The turns that threads have now.
#[derive(Debug, Default)]
pub(crate) struct StreamTurns {
    /// How many, for a look without the lock.
    taken: AtomicUsize,
    turns: Mutex<Vec<(StreamPlace, usize)>>,
    ended: Condvar,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamTurn<'a> {
    turns: &'a StreamTurns,
    turn: (StreamPlace, usize),
}

impl StreamTurns {
    /// Has any thread a turn? One load.
    pub(crate) fn any(&self) -> bool {
        self.taken.load(Ordering::Acquire) > 0
    }

    /// Takes the turn, behind those of other threads.
    pub(crate) fn take(&self, user: &ProgramStream) -> StreamTurn<'_> {
        let turn = (StreamPlace::of(user), this_thread());
        let mut turns = self.wait(self.lock(), turn);
        turns.push(turn);
        self.taken.fetch_add(1, Ordering::AcqRel);
        StreamTurn { turns: self, turn }
    }

    /// Waits for the turns of other threads.
    pub(crate) fn follow(&self, user: &ProgramStream) {
        drop(self.wait(self.lock(), (StreamPlace::of(user), this_thread())));
    }

    fn wait<'a>(
        &'a self,
        mut turns: MutexGuard<'a, Vec<(StreamPlace, usize)>>,
        (place, thread): (StreamPlace, usize),
    ) -> MutexGuard<'a, Vec<(StreamPlace, usize)>> {
        while turns.iter().any(|(other, of)| *of != thread && other.meets(&place)) {
            turns = self.ended.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        turns
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(StreamPlace, usize)>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
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
    use crate::vocabulary::stream::Home;

    fn user(stream: usize, kind: StreamOrdering) -> ProgramStream {
        let home = Home { context: CUcontext(1), life: 1 };
        ProgramStream { home, device: 0, stream: CUstream(stream), kind }
    }

    #[test]
    fn another_thread_comes_behind_and_the_same_one_does_not_wait() {
        let turns = StreamTurns::default();
        let (told, hears) = mpsc::channel();
        std::thread::scope(|scope| {
            let mine = turns.take(&user(7, StreamOrdering::Alone));
            turns.follow(&user(7, StreamOrdering::Alone));
            let again = turns.take(&user(7, StreamOrdering::Alone));
            let turns = &turns;
            scope.spawn(move || {
                // Another stream.
                drop(turns.take(&user(8, StreamOrdering::Alone)));
                told.send("beside").expect("the test listens");
                drop(turns.take(&user(7, StreamOrdering::Alone)));
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

    #[test]
    fn streams_meet_that_are_one_or_wait_for_each_other() {
        use StreamOrdering::*;
        let meets = |one, other| StreamPlace::of(&one).meets(&StreamPlace::of(&other));
        assert!(meets(user(7, Alone), user(7, Alone)));
        assert!(!meets(user(7, Blocking), user(8, Blocking)));
        assert!(meets(user(1, Legacy), user(8, Blocking)) && meets(user(8, Blocking), user(1, Legacy)));
        assert!(!meets(user(1, Legacy), user(8, Alone)));
        let own = user(CUstream::PER_THREAD.0, Blocking);
        assert!(!meets(own, own) && meets(own, user(1, Legacy)));
    }
}
