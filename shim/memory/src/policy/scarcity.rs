//! What is remembered of the device having been full, or nearly so.
//!
//! A program that lives in overflow would otherwise ask the driver and the host for their figures at every allocation.
//! The record holds for a few requests only, since other processes may free device memory unseen. It ends at once when the
//! manager itself gives device memory back.

use crate::vocabulary::sizes::{PRESSED_PART, SCARCE_FOR};

/// That the device was full, for a while, and what it had for us.
#[derive(Debug, Default)]
pub(crate) struct Scarcity {
    /// The smallest request that found no room.
    bytes: u64,
    /// How many more requests may rely on the record.
    left: u32,
    /// Bytes that the device had for us, held ones included, when that was last asked.
    pub(crate) ceiling: Option<u64>,
}

impl Scarcity {
    pub(crate) fn note(&mut self, bytes: u64, found_room: bool) {
        let smallest = if self.left > 0 { self.bytes.min(bytes) } else { bytes };
        *self = if found_room {
            Self { ceiling: self.ceiling, ..Self::default() }
        } else {
            Self { bytes: smallest, left: SCARCE_FOR, ..*self }
        };
    }

    /// May a request of this size take the device for full without asking?
    pub(crate) fn spares(&mut self, bytes: u64) -> bool {
        let spared = self.left > 0 && bytes >= self.bytes;
        self.left -= u32::from(spared);
        spared
    }

    /// Device memory was given back.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    /// Is little left to be had, in idle handles and in new ones? Then fragments are worth calls of the driver. `held` and
    /// `idle` are bytes of device memory.
    pub(crate) fn is_pressed(&self, held: u64, idle: u64) -> bool {
        let left = self.ceiling.map_or(u64::MAX, |ceiling| ceiling.saturating_sub(held));
        left.saturating_add(idle) < held / PRESSED_PART
    }
}
