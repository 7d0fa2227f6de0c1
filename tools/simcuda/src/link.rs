//! Links of limited speed: `SIMCUDA_LINKS`.
//!
//! A transfer books the link for the duration of its bytes, behind every earlier booking, and is
//! paced to end no sooner. So two copies over one link share it, and copies over different links do
//! not wait for each other.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One direction of one link.
#[derive(Debug)]
pub(crate) struct Link {
    bytes_per_second: Option<f64>,
    booked_until: Mutex<Option<Instant>>,
}

impl Link {
    /// An idle link; `None` for one without limit.
    pub(crate) fn new(bytes_per_second: Option<f64>) -> Self {
        Self { bytes_per_second, booked_until: Mutex::new(None) }
    }

    /// Books the link for a transfer that starts now. Returns the end of the booking, if the link
    /// is limited.
    pub(crate) fn book(&self, bytes: u64) -> Option<Instant> {
        let duration = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second?);
        let mut booked = self.booked_until.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let end = booked.map_or(now, |until| until.max(now)) + duration;
        *booked = Some(end);
        Some(end)
    }
}

/// Waits for the end of a booking. The sleep stands only for the simulated time on the link.
pub(crate) fn pace(end: Option<Instant>) {
    if let Some(left) = end.and_then(|end| end.checked_duration_since(Instant::now())) {
        std::thread::sleep(left);
    }
}
