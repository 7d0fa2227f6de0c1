//! Waits for the GPU to have nothing to do: how long they are, and those that were in vain. Work
//! may wait for the very thread that waits, so for a while after one of these none is made again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a request that finds no room waits, or a launch for which something is to move: it
/// would use slow memory otherwise.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// The same where nothing is to be waited for: events that are recorded in idle streams take some
/// microseconds to be passed.
pub(super) const LOOK: Duration = Duration::from_micros(500);

/// The time after a timeout in which no request or launch waits again.
const AFTER: Duration = Duration::from_secs(30);

/// Until when none waits.
static UNTIL: Mutex<Option<Instant>> = Mutex::new(None);

fn until() -> MutexGuard<'static, Option<Instant>> {
    UNTIL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A wait was in vain.
pub(super) fn note() {
    *until() = Some(Instant::now() + AFTER);
}

/// Is no wait made at present?
pub(super) fn is_vain() -> bool {
    until().is_some_and(|until| Instant::now() < until)
}
