//! Waits for the GPU that were in vain: work may wait for the very thread that waits. For a while none is made again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So long no request or launch waits again, after one has waited in vain.
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
