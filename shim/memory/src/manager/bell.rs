//! Rung when something under way has ended, for those who wait for it. Next to nothing where nobody does: a condition
//! variable makes a system call whether it is waited for or not.

use std::sync::PoisonError;

use crate::state::State;
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};
use crate::sync::{Condvar, MutexGuard};

#[derive(Debug, Default)]
pub(super) struct Bell {
    ended: Condvar,
    /// Changed under the lock only. So whoever changes the state after a waiter has looked at it knows of the waiter.
    waiting: AtomicU32,
}

impl Bell {
    /// The state has changed, and its lock was let go of.
    pub(super) fn ring(&self) {
        if self.waiting.load(Relaxed) > 0 {
            self.ended.notify_all();
        }
    }

    /// Lets go of the lock until the bell rings, or for no reason.
    pub(super) fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.waiting.fetch_add(1, Relaxed);
        let state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Relaxed);
        state
    }
}
