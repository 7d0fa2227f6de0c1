//! How the library's locks are taken.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock, also after a panic of its holder, which nothing here does on purpose: it must not
/// take every later call of the program with it.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
