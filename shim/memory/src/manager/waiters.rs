//! A condition variable with a count of its waiters: threads wait here until something under way
//! has ended.
//!
//! `notify` costs one load where no thread waits. A condition variable alone makes a system call
//! either way.

use std::sync::PoisonError;
use std::time::Duration;

use crate::state::State;
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};
use crate::sync::{Condvar, MutexGuard};

#[derive(Debug, Default)]
pub(super) struct Waiters {
    ended: Condvar,
    /// Modified only under the state lock, so a thread that changes the state after a waiter
    /// checked it always sees a count above 0.
    waiting: AtomicU32,
}

impl Waiters {
    /// To be called after a change of the state, when its lock has been released.
    pub(super) fn notify(&self) {
        if self.waiting.load(Relaxed) > 0 {
            self.ended.notify_all();
        }
    }

    /// Releases the lock and waits for [`Waiters::notify`]. May also return without one.
    pub(super) fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.waiting.fetch_add(1, Relaxed);
        let state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Relaxed);
        state
    }

    /// As [`Waiters::wait`], for a limited time.
    pub(super) fn wait_for<'a>(
        &self,
        state: MutexGuard<'a, State>,
        limit: Duration,
    ) -> MutexGuard<'a, State> {
        self.waiting.fetch_add(1, Relaxed);
        let (state, _) = self.ended.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Relaxed);
        state
    }
}
