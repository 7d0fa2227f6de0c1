//! Whether this process shares, and why not.
//!
//! Sharing ends in two steps: nothing more is shared from the moment on in which the program does
//! something that it does not go with; calls are looked at until the last block is private.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::process;

/// Calls are looked at.
static ON: AtomicBool = AtomicBool::new(false);

/// Chunks are shared, and not only counted.
static SHARES: AtomicBool = AtomicBool::new(false);

static ENDING: AtomicBool = AtomicBool::new(false);

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

/// Does it only count what could be shared?
pub(super) fn advises() -> bool {
    is_on() && !shares() && !is_ending()
}

/// For the rest of the process nothing more is shared. `true`: it was until now.
pub(super) fn end(why: &'static str) -> bool {
    let was = is_on() && !ENDING.swap(true, Relaxed);
    if was {
        SHARES.store(false, Relaxed);
        *GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        log::info!("memory is not shared with other processes any more: {why}");
    }
    was
}

/// Blocks that are shared are to become private, and no others shared.
pub(super) fn is_ending() -> bool {
    ENDING.load(Relaxed)
}

/// All blocks are private, or gone: nothing is looked at any more.
pub(super) fn retire() {
    ON.store(false, Relaxed);
}

/// Why, if it was ended.
pub(super) fn given_up() -> Option<&'static str> {
    *GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner)
}
