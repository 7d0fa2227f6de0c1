//! Remembers for a while that the device was full, or nearly so.
//!
//! Otherwise a program in overflow would query free memory of the driver and of the host at every
//! allocation. The record is valid for a few requests and a short time only, since other processes
//! may free device memory without notice. It ends when the manager releases device memory itself.

use std::time::{Duration, Instant};

use crate::vocabulary::sizes::{PRESSED_PART, SCARCE_FOR};

/// The longest time that the record is valid. A query at this interval costs nothing measurable.
const SCARCE_TIME: Duration = Duration::from_millis(250);

/// The record, and the memory that the device had for this process.
#[derive(Debug, Default)]
pub(crate) struct Scarcity {
    /// The smallest request that found no room.
    bytes: u64,
    /// How many more requests may rely on the record.
    spares: u32,
    until: Option<Instant>,
    /// Bytes that the device had for this process at the last query, including those held.
    pub(crate) ceiling: Option<u64>,
}

impl Scarcity {
    pub(crate) fn record_answer(&mut self, bytes: u64, found_room: bool, now: impl FnOnce() -> Instant) {
        let smallest = if self.spares > 0 { self.bytes.min(bytes) } else { bytes };
        *self = if found_room {
            Self { ceiling: self.ceiling, ..Self::default() }
        } else {
            Self { bytes: smallest, spares: SCARCE_FOR, until: Some(now() + SCARCE_TIME), ..*self }
        };
    }

    /// May a request of this size assume a full device without a query?
    pub(crate) fn spares(&mut self, bytes: u64, now: impl FnOnce() -> Instant) -> bool {
        let spared = self.spares > 0 && bytes >= self.bytes && self.until.is_some_and(|until| now() < until);
        self.spares -= u32::from(spared);
        spared
    }

    /// Device memory was given back.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// Is little memory left, in idle handles and in new ones? `held` and `idle` are bytes of
    /// device memory.
    pub(crate) fn is_pressed(&self, held: u64, idle: u64) -> bool {
        self.left(held).saturating_add(idle) < held / PRESSED_PART
    }

    /// The bytes that the device has left for this process; without a known ceiling, there is no
    /// bound.
    pub(crate) fn left(&self, held: u64) -> u64 {
        self.ceiling.map_or(u64::MAX, |ceiling| ceiling.saturating_sub(held))
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: another process has freed the device long ago, and requests go on being met on the
    //! host.
    use super::*;

    #[test]
    fn a_record_is_good_for_a_few_requests_and_a_short_time() {
        let (mut scarcity, now) = (Scarcity::default(), Instant::now());
        let full = |scarcity: &mut Scarcity| scarcity.record_answer(100, false, || now);
        full(&mut scarcity);
        assert!(scarcity.spares(100, || now) && !scarcity.spares(99, || now));
        assert!(!scarcity.spares(100, || now + SCARCE_TIME));
        full(&mut scarcity);
        let spared = (0..2 * SCARCE_FOR).filter(|_| scarcity.spares(100, || now)).count();
        assert_eq!(spared as u32, SCARCE_FOR);
        full(&mut scarcity);
        scarcity.record_answer(100, true, || now);
        assert!(!scarcity.spares(100, || now));
    }
}
