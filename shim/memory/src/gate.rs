//! A gate that every submission of work passes, and that a mover of memory closes for a bounded
//! time.
//!
//! A submitting thread counts itself in, makes its call, and counts itself out, without a lock. A
//! migrating thread closes the gate, waits a bounded time until no thread is inside, and opens it
//! again. A submitting thread that finds the gate closed waits outside. The gate is fair: threads
//! that waited outside enter before it closes again. A mover may leave it closed behind it, as for
//! a process that is paused: then another one opens it.
//!
//! Invariants: a count changes before the gate is looked at, and the gate is closed before counts
//! are looked at, all in one order (`SeqCst`), so one of the two sees the other; a thread counts
//! itself out where it counted itself in; the gate is closed by one mover at a time.

use std::sync::{PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::sync::atomic::{AtomicU32, Ordering::SeqCst};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Counts that threads share out among them.
pub const STRIPES: usize = 32;

/// In a pair of cache lines of its own: processors fetch two at a time.
#[derive(Debug)]
#[repr(align(128))]
struct Stripe(AtomicU32);

/// See above.
#[derive(Debug)]
pub struct Gate {
    /// 1: closed. Changes under `turn` only.
    closed: AtomicU32,
    inside: [Stripe; STRIPES],
    turn: Mutex<()>,
    /// The gate was opened, or a thread left while it was closed.
    changed: Condvar,
    /// Threads that wait until they may enter.
    waiting: AtomicU32,
}

/// The gate is closed and no thread is inside, until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Closed<'a>(&'a Gate);

/// Why the gate was not closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotClosed {
    /// Another thread has closed it, or threads that waited outside have not entered yet.
    Awaited,
    /// A thread was still inside when the time was over.
    Occupied,
}

impl Gate {
    /// An open gate.
    pub const fn new() -> Self {
        Self {
            closed: AtomicU32::new(0),
            inside: [const { Stripe(AtomicU32::new(0)) }; STRIPES],
            turn: Mutex::new(()),
            changed: Condvar::new(),
            waiting: AtomicU32::new(0),
        }
    }

    /// Counts the calling thread in if the gate is open. To be followed by [`Gate::leave`] with the
    /// same stripe, and not by another `enter`.
    #[inline]
    pub fn try_enter(&self, stripe: usize) -> bool {
        self.inside[stripe % STRIPES].0.fetch_add(1, SeqCst);
        if self.closed.load(SeqCst) == 0 {
            return true;
        }
        self.leave(stripe);
        false
    }

    /// As [`Gate::try_enter`]; waits until the gate is open.
    pub fn enter(&self, stripe: usize) {
        self.enter_announced(stripe, || {});
    }

    /// The same. `announce` is called, without a lock, once the thread counts as one that waits: a
    /// mover that looks afterwards sees it.
    pub fn enter_announced(&self, stripe: usize, announce: impl FnOnce()) {
        if self.try_enter(stripe) {
            return;
        }
        self.waiting.fetch_add(1, SeqCst);
        announce();
        let open = self.until_open(self.lock());
        // The gate does not close while this thread has the lock.
        self.inside[stripe % STRIPES].0.fetch_add(1, SeqCst);
        if self.waiting.fetch_sub(1, SeqCst) == 1 {
            self.changed.notify_all();
        }
        drop(open);
    }

    /// Does a thread wait outside? If none does, a migration may take its time.
    pub fn is_awaited(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Counts the calling thread out.
    pub fn leave(&self, stripe: usize) {
        if self.depart(stripe) {
            self.tell();
        }
    }

    /// As [`Gate::leave`]; `true`: a mover may be waiting, and is to be told with [`Gate::tell`].
    #[inline]
    pub fn depart(&self, stripe: usize) -> bool {
        self.inside[stripe % STRIPES].0.fetch_sub(1, SeqCst);
        self.closed.load(SeqCst) != 0
    }

    /// Under the lock, so that no mover is between its look and its wait.
    pub fn tell(&self) {
        let _turn = self.lock();
        self.changed.notify_all();
    }

    fn until_open<'a>(&'a self, mut turn: MutexGuard<'a, ()>) -> MutexGuard<'a, ()> {
        while self.closed.load(SeqCst) != 0 {
            turn = self.changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
        turn
    }

    /// Waits until the gate is open and the threads that waited outside have entered; `false`: some
    /// still wait after `patience`. A thread that is inside must not call this.
    pub fn let_pass(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut turn = self.lock();
        while !self.may_close() {
            match self.wait_until(turn, until) {
                Some(again) => turn = again,
                None => return false,
            }
        }
        true
    }

    /// Closes the gate and waits until no thread is inside. A thread that is inside must not call
    /// this. With the gate open again:
    ///
    /// # Errors
    /// [`NotClosed`].
    pub fn close(&self, patience: Duration) -> Result<Closed<'_>, NotClosed> {
        let until = Instant::now() + patience;
        let mut turn = self.lock();
        if !self.may_close() {
            return Err(NotClosed::Awaited);
        }
        self.closed.store(1, SeqCst);
        let closed = Closed(self);
        while !self.is_empty() {
            match self.wait_until(turn, until) {
                Some(again) => turn = again,
                None => {
                    drop(closed);
                    return Err(NotClosed::Occupied);
                }
            }
        }
        drop(turn);
        Ok(closed)
    }

    /// Opens the gate that was left closed by [`Closed::keep`].
    pub fn open(&self) {
        let _turn = self.lock();
        self.closed.store(0, SeqCst);
        self.changed.notify_all();
    }

    /// The same at the process's exit, which waits for no lock: threads that wait outside are woken
    /// only if no other thread has the lock. `false`: they were not.
    pub fn open_now(&self) -> bool {
        self.closed.store(0, SeqCst);
        let is_free = !matches!(self.turn.try_lock(), Err(TryLockError::WouldBlock));
        if is_free {
            self.changed.notify_all();
        }
        is_free
    }

    fn may_close(&self) -> bool {
        self.closed.load(SeqCst) == 0 && !self.is_awaited()
    }

    /// Waits for a change; `None`, without the lock, if the time is over.
    fn wait_until<'a>(&'a self, turn: MutexGuard<'a, ()>, until: Instant) -> Option<MutexGuard<'a, ()>> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        let waited = self.changed.wait_timeout(turn, left);
        Some(waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Each count for itself: behind a closed gate a count of 0 does not grow, except for a thread
    /// that sees the closed gate and leaves.
    fn is_empty(&self) -> bool {
        self.inside.iter().all(|stripe| stripe.0.load(SeqCst) == 0)
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Closed<'_> {
    /// The gate stays closed until [`Gate::open`].
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}
