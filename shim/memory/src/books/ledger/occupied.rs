//! A handle with blocks on it, as a migration sees it.

use std::ops::Range;

use wm_driver::{Handle, Tier};

use super::HandleRecord;
use super::keys::HandleKey;

/// The name of no memory.
pub(crate) const NO_MEMORY: Handle = Handle(0);

/// A handle with blocks on it.
#[derive(Debug, Clone)]
pub(crate) struct OccupiedHandle {
    pub(crate) key: HandleKey,
    pub(crate) raw: Handle,
    pub(crate) tier: Tier,
    /// It has memory that other processes use too, for reading only.
    pub(crate) foreign: bool,
    /// It is a piece's, at an address of the program's own.
    pub(crate) adopted: bool,
    /// It has no memory.
    pub(crate) away: bool,
    /// Its memory is not mapped at its addresses, but here alone.
    pub(crate) unmapped: Option<u64>,
    /// Addresses that its bytes are used at.
    pub(crate) range: Range<u64>,
    /// Its other mappings.
    pub(crate) others: Vec<u64>,
}

impl OccupiedHandle {
    pub(crate) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Is its memory mapped at its addresses?
    pub(crate) fn has_mapping(&self) -> bool {
        !self.away && self.unmapped.is_none()
    }

    /// Every address at which it is mapped; the one in use is the last.
    pub(crate) fn places(&self) -> Vec<u64> {
        self.others.iter().copied().chain([self.range.start]).collect()
    }
}

impl HandleRecord {
    /// The handle, with its bytes used at `start`.
    pub(super) fn occupied_at(&self, key: HandleKey, start: u64) -> OccupiedHandle {
        OccupiedHandle {
            key,
            raw: self.raw,
            tier: self.tier,
            foreign: self.foreign,
            adopted: self.adopted,
            away: self.away,
            unmapped: self.staging.filter(|_| self.unmapped),
            range: start..start + self.bytes,
            others: self.mapped.iter().copied().filter(|mapped| *mapped != start).collect(),
        }
    }
}

/// What became of the memory that a handle had before a swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FormerMemory {
    /// It is that idle handle.
    Idle(HandleKey),
    /// Other processes use it, too.
    Foreign(Handle),
    /// There was none.
    None,
}
