//! Handles whose bytes must not be written: shared ones, and those that are about to be.
//!
//! A *barred* handle lies wholly under one block, or under none; once its block is freed its bytes
//! are in no free run, so nothing is placed there and nothing is stitched from it. A *foreign*
//! handle is a barred one whose memory other processes use too, mapped for reading only. One
//! without a block is *parked*: it leaves the ledger without ever being idle.
//!
//! Invariant: `barred` names each barred handle by the address where it is active, and that stays
//! the same for as long as it is barred.

use std::ops::Range;

use wm_driver::Handle;

use super::segments::Segments;
use super::{HandleKey, HandleRecord, Ledger};
use crate::vocabulary::order::Pending;
use crate::vocabulary::plan::Steps;

impl Ledger {
    /// Bars a handle that one block covers.
    pub(crate) fn bar(&mut self, key: HandleKey) {
        let active = self.handles.change(key, |memory| {
            memory.barred = true;
            memory.active
        });
        if let Some(address) = active.flatten() {
            self.barred.insert(address, key);
        }
    }

    /// The handle has memory that is this process's alone, or still has it. Where its block was
    /// freed meanwhile it is free.
    pub(crate) fn unbar(&mut self, key: HandleKey) {
        let barred = self.handles.get(key).filter(|memory| memory.barred);
        let Some((Some(address), bytes, used)) =
            barred.map(|memory| (memory.active, memory.bytes, memory.used))
        else {
            return;
        };
        self.barred.remove(&address);
        self.handles.change(key, |memory| (memory.barred, memory.foreign) = (false, false));
        if used == 0 {
            let retired = self.extents.at(address).map(|(_, extent)| extent.retired_uses.clone());
            let mut pending = retired.unwrap_or_default();
            pending.blur();
            self.activate(key, address, Segments::one(bytes, pending));
        }
    }

    /// A barred handle has memory that other processes use. Returns the memory that it had; the
    /// same for one that has given its own memory away.
    pub(crate) fn make_foreign(&mut self, key: HandleKey, raw: Handle) -> Option<Handle> {
        self.handles.change(key, |memory| {
            memory.foreign = true;
            std::mem::replace(&mut memory.raw, raw)
        })
    }

    /// A block has left barred handles: nothing is unmapped there before its frees are past.
    pub(super) fn leave_barred(&mut self, left: &[u64], pending: &Pending) {
        for address in left {
            if let Some((_, extent)) = self.extents.at_mut(*address) {
                extent.retired_uses.join(pending);
            }
        }
    }

    /// Foreign handles, by address, that a range touches; `parked`: those without a block, or those
    /// with one.
    pub(crate) fn foreign(
        &self,
        range: &Range<u64>,
        parked: bool,
    ) -> impl Iterator<Item = (Range<u64>, HandleKey)> {
        let (begin, end) = (range.start, range.end);
        // A handle that begins before the range may reach in.
        let first = self.barred.range(..=begin).next_back().map_or(begin, |(address, _)| *address);
        self.barred.range(first..end.max(first)).filter_map(move |(address, key)| {
            let memory = self.handles.get(*key)?;
            let fits = memory.foreign && (memory.used == 0) == parked && address + memory.bytes > begin;
            fits.then_some((*address..address + memory.bytes, *key))
        })
    }

    /// Is something barred in the extent at an address?
    pub(crate) fn bars(&self, base: u64) -> bool {
        self.extents.range(base).is_some_and(|range| self.barred.range(range).next().is_some())
    }

    /// Is a handle foreign?
    pub(crate) fn is_foreign(&self, key: HandleKey) -> bool {
        self.handles.get(key).is_some_and(|memory| memory.foreign)
    }

    /// Forgets a parked handle and its mappings.
    pub(crate) fn take_parked(&mut self, key: HandleKey, steps: &mut Steps) {
        let parked = self.handles.change(key, |memory| {
            (memory.foreign && memory.used == 0 && !memory.held).then(|| memory.active.take()).flatten()
        });
        let Some(address) = parked.flatten() else { return };
        self.barred.remove(&address);
        self.take_handle(key, steps);
    }

    /// Every barred handle is known by its address, and lies under one block or none; every foreign
    /// one is barred.
    pub(super) fn audit_barred(&self) -> Result<(), String> {
        let of = |(key, memory): (HandleKey, &HandleRecord)| memory.barred.then_some((memory.active?, key));
        let mut barred: Vec<_> = self.handles.all().filter_map(of).collect();
        barred.sort_unstable();
        let known: Vec<_> = self.barred.iter().map(|(address, key)| (*address, *key)).collect();
        let wrong = self.handles.all().find(|(_, memory)| {
            memory.foreign && !memory.barred || memory.barred && ![0, memory.bytes].contains(&memory.used)
        });
        match wrong {
            _ if barred != known => Err(format!("barred {barred:x?}, known {known:x?}")),
            Some((key, memory)) => Err(format!("{key:?} is shared in part: {memory:x?}")),
            None => Ok(()),
        }
    }
}
