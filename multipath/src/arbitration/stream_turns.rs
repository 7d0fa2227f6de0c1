//! Turns of threads in a stream of the program: a copy of several parts stays one copy in its
//! stream, beside the work of other threads.
//!
//! A plain copy is one command, so two threads that copy in one stream are ordered by it. A copy of
//! ours begins in the stream with an event and ends there with waits; a command between them would
//! run beside its parts. So the thread that makes such a copy holds the stream's turn from before
//! the first command until after the last, and copies of other threads wait for it. A turn lasts as
//! long as the calls that enqueue the copy; for pageable memory it lasts as long as the copy.
//!
//! Invariants: a thread that holds a turn waits for nothing that another thread can do only after a
//! turn of its own. A thread never waits for its own turn: a signal handler may run on it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use wm_abi::{CUcontext, CUstream};

use crate::vocabulary::stream::{ProgramStream, StreamOrdering};

/// A stream, with the facts that decide whether another one is the same or waits for its work.
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

    /// Does work in one wait for work in the other? The handle of the per-thread stream is another
    /// stream in each thread.
    fn meets(&self, other: &Self) -> bool {
        use StreamOrdering::{Blocking, Legacy};
        let is_same = self.stream == other.stream && self.stream != CUstream::PER_THREAD;
        let waits = matches!((self.kind, other.kind), (Legacy, Blocking) | (Blocking, Legacy));
        self.context == other.context && (is_same || waits)
    }
}

/// A number that no other thread has while this one lives. Unlike the standard library's, it needs
/// no work when the thread ends.
fn this_thread() -> usize {
    thread_local! {
        static MARK: u8 = const { 0 };
    }
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// The turns that threads hold now.
#[derive(Debug, Default)]
pub(crate) struct StreamTurns {
    /// Their number, to be read without the lock.
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
    /// Does any thread hold a turn? One load.
    pub(crate) fn any(&self) -> bool {
        self.taken.load(Ordering::Acquire) > 0
    }

    /// Reserves the turn, after the turns of other threads.
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
