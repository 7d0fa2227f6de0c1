//! How the library's locks are taken.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Takes a lock, also after a panic of its holder, which nothing here does on purpose: it must not
/// take every later call of the program with it.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The longest that the exit waits for a lock.
const MOMENT: Duration = Duration::from_millis(500);

/// Takes a lock if its holder lets go within half a second. For the exit: a handler of a signal
/// that calls `exit` may have interrupted the holder.
pub fn lock_soon<T: ?Sized>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let begin = Instant::now();
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if begin.elapsed() < MOMENT => std::thread::yield_now(),
            Err(TryLockError::WouldBlock) => return None,
        }
    }
}
