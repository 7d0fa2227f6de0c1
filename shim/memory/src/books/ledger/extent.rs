//! One extent: its class, how much of it is used, and the mappings in it.

use std::cell::Cell;
use std::ops::Range;

use smallvec::SmallVec;

use super::keys::HandleKey;
use crate::vocabulary::order::Pending;
use crate::vocabulary::sizes::Class;

/// One extent; its first address is its key.
#[derive(Debug)]
pub(crate) struct Extent {
    pub(crate) bytes: u64,
    /// The class that its blocks are packed by; `None`: it is one block's own.
    pub(crate) class: Option<Class>,
    pub(crate) stitched: bool,
    /// Made of late memory.
    pub(crate) late: bool,
    /// When it was made.
    pub(super) made: u64,
    /// Bytes under blocks.
    pub(crate) used: u64,
    /// When the last block left it.
    pub(crate) left: u64,
    /// The points of work that may still be touching it through handles that have become active
    /// elsewhere. They must be past before anything here is unmapped.
    pub(crate) retired_uses: Pending,
    /// A mapping that was in the way when the extent was last looked at as a whole: likely, it
    /// still is.
    pub(super) blocking_hint: Cell<u64>,
    /// The mappings, by first address. Mostly there is one handle, which lies in this very place.
    pub(super) mappings: SmallVec<[(u64, Mapping); 1]>,
}

/// One mapping.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mapping {
    pub(crate) bytes: u64,
    pub(crate) key: HandleKey,
}

impl Extent {
    pub(crate) fn is_idle_view(&self) -> bool {
        self.stitched && self.used == 0
    }

    /// Index of the first mapping that begins at `address` or later.
    pub(super) fn from(&self, address: u64) -> usize {
        self.mappings.partition_point(|(start, _)| *start < address)
    }

    /// Index of the last mapping that begins at or before `address`; of the first, if there is
    /// none.
    pub(super) fn near(&self, address: u64) -> usize {
        self.from(address + 1).saturating_sub(1)
    }

    pub(super) fn mapping(&self, address: u64) -> Option<&Mapping> {
        self.mappings
            .get(self.from(address))
            .filter(|(start, _)| *start == address)
            .map(|(_, mapping)| mapping)
    }

    /// Mappings that start in a range.
    pub(super) fn mappings(&self, range: Range<u64>) -> impl Iterator<Item = (u64, Mapping)> {
        let begun = self.mappings[self.from(range.start)..].iter();
        begun.take_while(move |(start, _)| *start < range.end).copied()
    }

    /// Mappings that a range touches, each with the touched part.
    pub(crate) fn touched(&self, address: u64, bytes: u64) -> impl Iterator<Item = (Range<u64>, HandleKey)> {
        let end = address + bytes;
        let begun = self.mappings[self.near(address)..].iter().take_while(move |(start, _)| *start < end);
        let part = move |(start, mapping): &(u64, Mapping)| {
            (*start.max(&address)..(start + mapping.bytes).min(end), mapping.key)
        };
        begun.map(part).filter(|(range, _)| !range.is_empty())
    }
}
