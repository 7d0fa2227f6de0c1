//! Whether memory may move at all, as the user has set it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Decided at load.
static ON: AtomicBool = AtomicBool::new(false);

/// May memory move?
#[inline]
pub(crate) fn is_on() -> bool {
    ON.load(Relaxed)
}

pub(super) fn turn_on() {
    ON.store(true, Relaxed);
}
