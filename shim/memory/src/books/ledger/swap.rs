//! Swaps: a handle that blocks lie on gets other memory, of another tier and the same size, at the
//! same addresses.
//!
//! The handle keeps its name, its mappings and its blocks; the other handle's mappings become its
//! own. The memory that it had is an idle handle afterwards. Its only mapping is its staging place,
//! which stays with the memory.

use std::ops::Range;

use smallvec::SmallVec;
use wm_driver::{Handle, KeyedFingerprint, Tier};

use super::occupied::{FormerMemory, OccupiedHandle};
use super::{HandleKey, KeptNumber, Ledger};
use crate::vocabulary::order::{Pending, Point};
use crate::vocabulary::plan::Undo;

impl Ledger {
    /// The handle that backs an address and has a block on it.
    pub(crate) fn occupied_handle(&self, address: u64) -> Option<OccupiedHandle> {
        let (_, key) = self.extents.touched(address, 1).next()?;
        let memory = self.handles.get(key).filter(|memory| memory.used > 0)?;
        let start = memory.active?;
        let range = Some(start..start + memory.bytes).filter(|range| range.contains(&address));
        range.map(|_| memory.occupied_at(key, start))
    }

    /// The idle views that map handles of a range which lie on a tier, up to `most` bytes of them.
    pub(crate) fn idle_views_of(&self, range: &Range<u64>, tier: Tier, most: u64) -> Vec<u64> {
        let touched = self.extents.touched(range.start, range.end - range.start);
        let records =
            touched.filter_map(|(_, key)| self.handles.get(key)).filter(|memory| memory.tier == tier);
        let (mut bytes, mut views) = (0, Vec::new());
        for memory in records {
            if bytes >= most {
                break;
            }
            bytes += memory.bytes;
            let places = memory.mapped.iter().filter(|place| memory.active != Some(**place));
            let extents = places.filter_map(|place| self.extents.at(*place));
            views.extend(extents.filter(|(_, extent)| extent.is_idle_view()).map(|(base, _)| base));
        }
        views.sort_unstable();
        views.dedup();
        views
    }

    /// Is another handle mapped in an extent that this one is mapped in?
    pub(crate) fn meets(&self, handle: &OccupiedHandle, other: HandleKey) -> bool {
        self.meetings(handle, other).next().is_some()
    }

    /// Forgets the mappings of another handle, which a plan has taken, in extents that this one is
    /// mapped in. Returns the steps that unmap it there.
    pub(crate) fn detach(&mut self, handle: &OccupiedHandle, other: HandleKey) -> Vec<Undo> {
        let Some((raw, _, bytes, _)) = self.memory(other) else { return Vec::new() };
        let places: Vec<u64> = self.meetings(handle, other).collect();
        places.iter().for_each(|address| self.unmap(*address));
        places.into_iter().map(|address| Undo::Unmap { address, bytes, handle: raw }).collect()
    }

    fn meetings(&self, handle: &OccupiedHandle, other: HandleKey) -> impl Iterator<Item = u64> {
        let base = |address: u64| self.extents.at(address).map(|(base, _)| base);
        let mine: SmallVec<[Option<u64>; 4]> =
            handle.others.iter().chain([&handle.range.start]).map(|address| base(*address)).collect();
        let theirs = self.handles.get(other).into_iter().flat_map(|other| other.mapped.iter().copied());
        theirs.filter(move |address| mine.contains(&base(*address)))
    }

    /// The points of the frees of its free parts, and of former tenants of its addresses.
    pub(crate) fn touching_occupied(&self, handle: &OccupiedHandle) -> Pending {
        let mut pending = Pending::default();
        self.runs.within(handle.range.clone()).for_each(|(_, run)| pending.join(&run.segments.pending()));
        for address in handle.others.iter().chain([&handle.range.start]) {
            let extent = self.extents.at(*address).map(|(_, extent)| extent);
            extent.into_iter().for_each(|extent| pending.join(&extent.retired_uses));
        }
        pending
    }

    /// Work may be touching a handle until a point is past, even if its blocks are freed before.
    pub(crate) fn note_use(&mut self, handle: &OccupiedHandle, until: Point) {
        for address in handle.others.iter().chain([&handle.range.start]) {
            let extent = self.extents.at_mut(*address);
            extent.into_iter().for_each(|(_, extent)| extent.retired_uses.add(until));
        }
    }

    /// Parts of a range that are not free.
    pub(crate) fn occupied_parts(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut next = range.start;
        let mut parts = Vec::new();
        let free = self.runs.within(range.clone()).map(|(free, _)| free);
        let ends = free.chain(std::iter::once(range.end..range.end));
        for free in ends {
            parts.extend((next < free.start).then_some(next..free.start));
            next = free.end;
        }
        parts
    }

    /// A plan takes a handle that has blocks, or lets it go: meanwhile its memory is chosen for
    /// nothing else.
    pub(crate) fn hold(&mut self, key: HandleKey, held: bool) {
        if held {
            self.handles.kept_mut().take(key);
        }
        let home = self.handles.change(key, |memory| {
            memory.held = held;
            memory.primary_mapping()
        });
        if let Some(home) = home.flatten() {
            self.activate_at(key, home);
        }
    }

    /// Has a plan taken the handle?
    pub(crate) fn is_held(&self, key: HandleKey) -> bool {
        self.handles.get(key).is_some_and(|memory| memory.held)
    }

    /// `key`, which a plan holds, gets the memory of `spare`, which a plan has taken. The memory
    /// that it had is idle, or is returned where it was foreign.
    pub(crate) fn swap(&mut self, key: HandleKey, spare: HandleKey) -> FormerMemory {
        self.exchange(key, spare).unwrap_or(FormerMemory::None)
    }

    fn exchange(&mut self, key: HandleKey, spare: HandleKey) -> Option<FormerMemory> {
        let range = self.active_range(key)?;
        let parts: Vec<Range<u64>> = self.runs.within(range).map(|(part, _)| part).collect();
        // A run is of one tier: the free bytes here leave the runs that they are part of.
        let limit = |ledger: &Self, at| ledger.extents.range(at).map_or(u64::MAX, |extent| extent.end);
        let mut free = Vec::new();
        for part in parts {
            let limit = limit(self, part.start);
            let segments = self.runs.claim(part.start, part.end - part.start, limit);
            free.push((part, segments));
        }
        let foreign = self.is_foreign(key);
        let (raw, tier, bytes, staging) = self.memory(key)?;
        let new = self.handles.remove(spare)?;
        new.mapped.iter().for_each(|address| self.extents.rename(*address, key));
        self.handles.change(key, |memory| memory.mapped.extend(new.mapped));
        self.handles.swap_memory(key, new.raw, new.tier, new.staging);
        free.into_iter().for_each(|(part, segments)| self.give(part, key, segments));
        if foreign {
            self.unbar(key);
            return Some(FormerMemory::Foreign(raw));
        }
        let idle = self.insert_handle(raw, tier, bytes);
        self.stage(idle, staging);
        Some(FormerMemory::Idle(idle))
    }

    /// An idle handle has the bytes of another one in these parts of it, as they are now.
    pub(crate) fn keep(&mut self, idle: HandleKey, of: HandleKey, parts: Vec<Range<u64>>) {
        self.handles.kept_mut().keep(idle, of, parts);
    }

    /// The addresses of handles that have kept copies without fingerprints, up to `most` bytes of
    /// them, and of one at least.
    pub(crate) fn without_fingerprints(&self, most: u64) -> Vec<(KeptNumber, Range<u64>)> {
        let mut left = most.max(1);
        let pending = self.handles.kept().pending();
        let pending = pending.filter_map(|(number, of)| Some((number, self.active_range(of)?)));
        let fits = |(_, at): &(KeptNumber, Range<u64>)| {
            let fits = left > 0;
            left = left.saturating_sub(at.end - at.start);
            fits
        };
        pending.take_while(fits).collect()
    }

    /// Notes the fingerprints of the first chunks that a kept copy has, or of all.
    pub(crate) fn note_fingerprints(&mut self, number: KeptNumber, prints: Vec<KeyedFingerprint>) {
        self.handles.kept_mut().note(number, prints);
    }

    /// Forgets the kept copies that have no fingerprints yet.
    pub(crate) fn forget_unprinted(&mut self) {
        self.handles.kept_mut().forget_pending();
    }

    /// The kept copies of the handles of a range of addresses, which no plan holds, up to `most`
    /// bytes of them, and where these handles are.
    pub(crate) fn kept_copies_in(&self, range: &Range<u64>, most: u64) -> Vec<(KeptNumber, Range<u64>)> {
        let mut left = most;
        let mut copies = Vec::new();
        for (_, key) in self.extents.touched(range.start, range.end - range.start) {
            let kept = self.handles.kept().of(key).filter(|_| !self.is_held(key));
            let Some(((_, copy), at)) = kept.zip(self.active_range(key)) else { continue };
            if left == 0 {
                break;
            }
            left = left.saturating_sub(at.end - at.start);
            copies.push((copy.number, at));
        }
        copies
    }

    /// Notes where a handle is mapped for the copies of moves, or that it is nowhere. Returns where
    /// it was.
    pub(crate) fn stage(&mut self, key: HandleKey, staging: Option<u64>) -> Option<u64> {
        self.handles.change(key, |memory| std::mem::replace(&mut memory.staging, staging)).flatten()
    }

    fn memory(&self, key: HandleKey) -> Option<(Handle, Tier, u64, Option<u64>)> {
        self.handles.get(key).map(|memory| (memory.raw, memory.tier, memory.bytes, memory.staging))
    }

    fn active_range(&self, key: HandleKey) -> Option<Range<u64>> {
        let memory = self.handles.get(key)?;
        memory.active.map(|start| start..start + memory.bytes)
    }
}
