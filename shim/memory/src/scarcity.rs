//! What is remembered of the device having been full.
//!
//! A program that lives in overflow would otherwise ask the driver and the host for their figures at every allocation.
//! The memory is short, and ends at once when the manager gives device memory back: others may do so unseen.

use crate::sizes::SCARCE_FOR;

/// Remembers that the device was full, for a while: a program that lives in overflow would otherwise ask the driver and
/// the host for their figures at every allocation.
#[derive(Debug, Default)]
pub(crate) struct Scarcity {
    /// The smallest request that found no room.
    bytes: u64,
    /// Requests that may still rely on it.
    left: u32,
}

impl Scarcity {
    pub(crate) fn note(&mut self, bytes: u64, found_room: bool) {
        let smallest = if self.left > 0 { self.bytes.min(bytes) } else { bytes };
        *self = if found_room { Self::default() } else { Self { bytes: smallest, left: SCARCE_FOR } };
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
}
