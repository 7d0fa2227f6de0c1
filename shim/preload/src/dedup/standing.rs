//! Whether this process shares, and why not.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::process;

/// Calls are looked at.
static ON: AtomicBool = AtomicBool::new(false);

/// Chunks are shared, and not only counted.
static SHARES: AtomicBool = AtomicBool::new(false);

static GIVEN_UP: Mutex<Option<&'static str>> = Mutex::new(None);

/// To be called before the first hook is connected.
pub(super) fn begin(shares: bool) {
    ON.store(true, Relaxed);
    SHARES.store(shares, Relaxed);
}

#[inline]
pub(super) fn is_on() -> bool {
    ON.load(Relaxed) && !process::forked()
}

pub(super) fn shares() -> bool {
    SHARES.load(Relaxed)
}

/// For the rest of the process nothing more is shared. `true`: it was.
pub(super) fn end(why: &'static str) -> bool {
    let was = ON.swap(false, Relaxed);
    if was {
        *GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        log::info!("memory is not shared with other processes any more: {why}");
    }
    was
}

/// Why, if it was ended.
pub(super) fn given_up() -> Option<&'static str> {
    *GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner)
}
