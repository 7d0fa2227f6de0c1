//! Waits for an idle GPU: their length, and the back-off after one that timed out. Work may wait
//! for the very thread that waits, so after a timeout no wait is made for a while.

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

/// A wait timed out.
pub(super) fn note() {
    *until() = Some(Instant::now() + AFTER);
}

/// Is no wait made at present?
pub(super) fn is_vain() -> bool {
    until().is_some_and(|until| Instant::now() < until)
}
