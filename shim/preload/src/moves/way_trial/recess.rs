//! For how long launches need not be recorded between two measurements of a way that moves nothing
//! at launches. Pure.

use std::time::Duration;

/// A recess is so many times as long as the measurement before it, and at most this time.
const PART: u32 = 15;
const LONGEST: Duration = Duration::from_secs(60);

/// A period is seen in launches that follow each other. So there is no recess before one is known,
/// or before so many measurements without one.
const UNSEEN: u32 = 8;

/// The recess that is due, if one is.
#[derive(Debug, Default)]
pub(super) struct Recess {
    measurements: u32,
    due: Option<Duration>,
}

impl Recess {
    /// The chosen way was measured for that time, over a period or, if `is_rough`, over any time.
    pub(super) fn measured(&mut self, took: Duration, is_rough: bool) {
        self.measurements = self.measurements.saturating_add(1);
        let is_due = !is_rough || self.measurements > UNSEEN;
        self.due = is_due.then(|| took.saturating_mul(PART).min(LONGEST));
    }

    /// Launches are to be recorded.
    pub(super) fn cancel(&mut self) {
        self.due = None;
    }

    pub(super) fn take(&mut self) -> Option<Duration> {
        self.due.take()
    }
}
