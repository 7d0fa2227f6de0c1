//! The ledger: which physical memory is where, and which of it is free. Pure bookkeeping, no driver
//! call.
//!
//! Invariants, held between any two calls of this module and checked by [`Ledger::audit`]:
//! * the bytes of an active handle are covered, under its active mapping, by blocks and free runs
//!   without overlap;
//! * under a mapping that is not active there is neither block nor run;
//! * a handle is in the index of idle ones exactly if no block lies on it, no plan holds it and it
//!   is not barred;
//! * a barred handle lies under one block or under none, and has no free run (`share.rs`);
//! * a handle that is idle and active has its bytes in free runs; one that is idle and not active
//!   waits for nothing.

mod adopted;
mod audit;
mod away;
mod extent;
mod extents;
mod handles;
mod kept;
mod keys;
mod occupied;
mod removal;
pub(crate) mod run;
mod runs;
mod segments;
mod share;
mod size_index;
mod swap;
mod unmapped;

use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;
use wm_driver::{Handle, Tier};

pub(crate) use extent::Mapping;
pub(crate) use extents::Extents;
pub(crate) use handles::{HandleRecord, HandleTable};
pub(crate) use kept::KeptNumber;
pub(crate) use keys::HandleKey;
pub(crate) use occupied::{FormerMemory, NO_MEMORY, OccupiedHandle};
pub(crate) use run::Run;
pub(crate) use runs::Runs;
pub(crate) use segments::Segments;

use crate::vocabulary::order::{Pending, Point};
use crate::vocabulary::sizes::Class;
use crate::vocabulary::tiers::TierBytes;

/// A handle that a plan holds, and the values needed to put it back.
#[derive(Debug)]
pub(crate) struct TakenHandle {
    pub(crate) key: HandleKey,
    pub(crate) raw: Handle,
    pub(crate) tier: Tier,
    pub(crate) bytes: u64,
    pub(crate) staging: Option<u64>,
    pub(crate) segments: Segments,
    was: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    handles: HandleTable,
    extents: Extents,
    runs: Runs,
    /// Barred handles, by the address that their bytes are used at.
    barred: BTreeMap<u64, HandleKey>,
}

impl Ledger {
    #[inline]
    pub(crate) fn handles(&self) -> &HandleTable {
        &self.handles
    }

    #[inline]
    pub(crate) fn extents(&self) -> &Extents {
        &self.extents
    }

    #[inline]
    pub(crate) fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Takes in a new handle, idle and not mapped.
    pub(crate) fn insert_handle(&mut self, raw: Handle, tier: Tier, bytes: u64) -> HandleKey {
        self.handles.insert(raw, tier, bytes)
    }

    /// Takes in a new extent in which nothing is mapped yet.
    pub(crate) fn insert_extent(
        &mut self,
        base: u64,
        bytes: u64,
        class: Option<Class>,
        stitched: bool,
        late: bool,
    ) {
        self.extents.insert(base, bytes, class, stitched, late);
    }

    /// Drops points that are past, wherever something waits for them.
    pub(crate) fn forget_past(&mut self, is_past: impl Fn(&Point) -> bool) {
        self.runs.forget(&is_past);
        self.extents.forget(&is_past);
    }

    /// Puts a block over free runs. Returns where its bytes are and the points that they wait for.
    pub(crate) fn occupy(&mut self, address: u64, bytes: u64) -> (TierBytes, Pending) {
        let mut tiers = TierBytes::default();
        let Some((base, extent)) = self.extents.use_changed(address, bytes as i64) else {
            debug_assert!(false, "no extent at {address:#x}");
            return (tiers, Pending::default());
        };
        for (part, key) in extent.touched(address, bytes) {
            let length = part.end - part.start;
            let tier = self.handles.change(key, |memory| {
                memory.used += length;
                memory.tier
            });
            tier.into_iter().for_each(|tier| *tiers.bytes_mut(tier) += length);
        }
        (tiers, self.runs.claim(address, bytes, base + extent.bytes).pending())
    }

    /// How many of the bytes at an address, which are free, are on a tier.
    pub(crate) fn bytes_on(&self, tier: Tier, address: u64, bytes: u64) -> u64 {
        let touched = self.extents.touched(address, bytes);
        let on_tier =
            touched.filter(|(_, key)| self.handles.get(*key).is_some_and(|memory| memory.tier == tier));
        on_tier.map(|(part, _)| part.end - part.start).sum()
    }

    /// Takes a block away; its bytes become free runs that wait for `pending`. Handles that are
    /// idle now go home: a program that repeats itself then finds the same free runs again, and
    /// each stitched extent when it is due.
    pub(crate) fn vacate(&mut self, address: u64, bytes: u64, pending: &Pending) {
        let Some((base, extent)) = self.extents.use_changed(address, -(bytes as i64)) else { return };
        let mut astray: SmallVec<[(HandleKey, u64); 2]> = SmallVec::new();
        let mut left: SmallVec<[u64; 2]> = SmallVec::new();
        let handles = &mut self.handles;
        let freed = extent.touched(address, bytes).filter_map(|(part, key)| {
            let length = part.end - part.start;
            let (tier, home, barred) = handles.change(key, |memory| {
                memory.used = memory.used.saturating_sub(length);
                (memory.tier, memory.primary_mapping(), memory.barred)
            })?;
            if barred {
                left.push(part.start);
                return None;
            }
            astray.extend(home.map(|home| (key, home)));
            Some((part, tier))
        });
        let (class, late, range) = (extent.class, extent.late, base..base + extent.bytes);
        for (part, tier) in one_a_tier(freed) {
            let bytes = part.end - part.start;
            let segments = Segments::one(bytes, pending.clone());
            self.runs.give(part.start, Run::new(class, tier, late, segments), &range);
        }
        astray.into_iter().for_each(|(key, home)| self.activate_at(key, home));
        self.leave_barred(&left, pending);
    }

    /// Makes an idle handle active in another of its mappings.
    fn activate_at(&mut self, key: HandleKey, address: u64) {
        let segments = self.deactivate(key);
        self.activate(key, address, segments);
    }

    fn give(&mut self, part: Range<u64>, key: HandleKey, segments: Segments) {
        let (Some(memory), Some((base, extent))) = (self.handles.get(key), self.extents.at(part.start))
        else {
            debug_assert!(false, "no handle or extent at {:#x}", part.start);
            return;
        };
        let run = Run::new(extent.class, memory.tier, extent.late, segments);
        self.runs.give(part.start, run, &(base..base + extent.bytes));
    }

    /// Is all of an idle handle usable, by the points that its bytes wait for?
    pub(crate) fn is_usable(&self, key: HandleKey, usable: impl Fn(&Pending) -> bool) -> bool {
        self.idle_range(key).is_none_or(|(run, range)| run.segments.is_usable(range, usable))
    }

    /// The points that an idle handle waits for.
    pub(crate) fn pending(&self, key: HandleKey) -> Pending {
        self.idle_range(key).map(|(run, range)| run.segments.pending_over(range)).unwrap_or_default()
    }

    /// The run that an idle handle lies in, and where in it; `None` where it is active nowhere.
    fn idle_range(&self, key: HandleKey) -> Option<(&Run, Range<u64>)> {
        let memory = self.handles.get(key)?;
        let (start, run) = self.runs.at(memory.active?)?;
        let begin = memory.active? - start;
        Some((run, begin..begin + memory.bytes))
    }

    /// Makes the mapping at `address` the one that an idle handle's bytes are free under. No
    /// `segments`: nothing was using them.
    pub(crate) fn activate(&mut self, key: HandleKey, address: u64, segments: Segments) {
        let Some(bytes) = self.handles.change(key, |memory| {
            memory.active = Some(address);
            memory.bytes
        }) else {
            return;
        };
        let unused = segments.bytes() != bytes;
        let segments = if unused { Segments::one(bytes, segments.pending()) } else { segments };
        self.give(address..address + bytes, key, segments);
    }

    /// Takes an idle handle's bytes out of the free runs. The extent they were free in remembers
    /// the points of work that may still be touching it.
    pub(crate) fn deactivate(&mut self, key: HandleKey) -> Segments {
        let taken =
            self.handles.change(key, |memory| memory.active.take().map(|at| (at, memory.bytes))).flatten();
        let found = taken.and_then(|(at, bytes)| Some((at, bytes, self.extents.at_mut(at)?)));
        let Some((address, bytes, (base, extent))) = found else { return Segments::default() };
        let segments = self.runs.claim(address, bytes, base + extent.bytes);
        extent.retired_uses.join(&segments.pending());
        segments
    }

    /// Makes every mapping that begins in a range active: all their handles are idle, or active
    /// there already.
    pub(crate) fn claim(&mut self, range: Range<u64>) {
        let mappings: Vec<_> = self.extents.mappings(range).collect();
        for (address, mapping) in mappings {
            if self.handles.get(mapping.key).is_some_and(|memory| memory.active != Some(address)) {
                self.activate_at(mapping.key, address);
            }
        }
    }

    /// Gives an idle handle to a plan.
    pub(crate) fn take_for_plan(&mut self, key: HandleKey) -> Option<TakenHandle> {
        let was = self.handles.get(key)?.active;
        let segments = self.deactivate(key);
        self.handles.change(key, |memory| {
            memory.held = true;
            TakenHandle {
                key,
                raw: memory.raw,
                tier: memory.tier,
                bytes: memory.bytes,
                staging: memory.staging,
                segments,
                was,
            }
        })
    }

    /// Puts a handle back as it was before [`Ledger::take_for_plan`], or into another of its
    /// mappings if that one is gone.
    pub(crate) fn put_back(&mut self, taken: &TakenHandle) {
        let target = self.handles.change(taken.key, |memory| {
            memory.held = false;
            taken.was.filter(|was| memory.mapped.contains(was)).or(memory.mapped.last().copied())
        });
        if let Some(address) = target.flatten() {
            self.activate(taken.key, address, taken.segments.clone());
        }
    }

    /// Notes a mapping. It is not active.
    pub(crate) fn map(&mut self, key: HandleKey, address: u64) {
        let bytes = self.handles.change(key, |memory| {
            memory.held = false;
            memory.mapped.push(address);
            memory.bytes
        });
        bytes.into_iter().for_each(|bytes| self.extents.map(address, bytes, key));
    }

    /// Forgets a mapping of an idle handle. If it was active there, another of its mappings becomes
    /// active.
    pub(crate) fn unmap(&mut self, address: u64) {
        let Some(mapping) = self.extents.unmap(address) else { return };
        let was_active = self.handles.change(mapping.key, |memory| {
            memory.mapped.retain(|mapped| *mapped != address);
            memory.active == Some(address)
        });
        if was_active == Some(true) {
            self.activate_elsewhere(mapping.key);
        }
    }

    fn activate_elsewhere(&mut self, key: HandleKey) {
        let segments = self.deactivate(key);
        let elsewhere = self.handles.get(key).and_then(|memory| memory.mapped.first().copied());
        elsewhere.into_iter().for_each(|address| self.activate(key, address, segments.clone()));
    }

    /// Everything that may still be touching an extent: free runs' and former tenants' points.
    pub(crate) fn touching(&self, base: u64) -> Pending {
        let Some((_, extent)) = self.extents.at(base) else { return Pending::default() };
        let mut pending = extent.retired_uses.clone();
        let mut next = base;
        for (address, mapping) in self.extents.mappings(base..base + extent.bytes) {
            let active = self.handles.get(mapping.key).is_some_and(|memory| memory.active == Some(address));
            if active
                && address >= next
                && let Some((start, run)) = self.runs.at(address)
            {
                pending.join(&run.segments.pending());
                next = start + run.bytes;
            }
        }
        pending
    }
}

/// Joins parts that follow each other on the same tier.
fn one_a_tier(parts: impl Iterator<Item = (Range<u64>, Tier)>) -> impl Iterator<Item = (Range<u64>, Tier)> {
    let mut parts = parts.peekable();
    std::iter::from_fn(move || {
        let (mut whole, tier) = parts.next()?;
        while let Some((part, _)) = parts.next_if(|(part, other)| *other == tier && part.start == whole.end) {
            whole.end = part.end;
        }
        Some((whole, tier))
    })
}
