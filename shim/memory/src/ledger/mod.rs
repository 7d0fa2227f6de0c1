//! The ledger: which physical memory is where, and which of it is free. Pure bookkeeping, no driver call.
//!
//! Invariants, held between any two calls of this module and checked by [`Ledger::audit`]:
//! * the bytes of an active handle are covered, under its active mapping, by blocks and free runs without overlap;
//! * under a mapping that is not active there is neither block nor run;
//! * a handle is in the index of idle ones exactly if no block lies on it and no plan holds it;
//! * a handle that is idle and active has its bytes in free runs; one that is idle and not active waits for nothing.

mod audit;
mod extent;
mod extents;
mod keys;
mod loans;
mod memory;
pub(crate) mod runs;
mod shelves;

use std::ops::Range;

use smallvec::SmallVec;
use wm_driver::{Handle, Tier};

pub(crate) use extent::Mapping;
pub(crate) use extents::Extents;
pub(crate) use loans::Stretch;
pub(crate) use memory::{Key, Memories, Memory};
pub(crate) use runs::{Run, Runs};

use crate::order::Pending;
use crate::tiers::TierBytes;

/// A handle that a plan holds, and what it takes to put it back.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) key: Key,
    pub(crate) raw: Handle,
    pub(crate) tier: Tier,
    pub(crate) bytes: u64,
    pub(crate) pending: Pending,
    was: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) memories: Memories,
    pub(crate) extents: Extents,
    pub(crate) runs: Runs,
    loans: loans::Loans,
}

impl Ledger {
    /// Puts a block over free runs. Returns where its bytes are and what they wait for.
    pub(crate) fn occupy(&mut self, address: u64, bytes: u64) -> (TierBytes, Pending) {
        let mut tiers = TierBytes::default();
        let Some((base, extent)) = self.extents.use_changed(address, bytes as i64) else {
            debug_assert!(false, "no extent at {address:#x}");
            return (tiers, Pending::default());
        };
        for (part, key) in extent.touched(address, bytes) {
            let length = part.end - part.start;
            let tier = self.memories.change(key, |memory| {
                memory.used += length;
                memory.tier
            });
            tier.into_iter().for_each(|tier| *tiers.part(tier) += length);
        }
        (tiers, self.runs.take(address, bytes, base + extent.bytes))
    }

    /// Takes a block away; its bytes become free runs that wait for `pending`. Handles that are idle now go home: a
    /// program that repeats itself then finds the same free runs again, and each stitched extent when it is due.
    pub(crate) fn vacate(&mut self, address: u64, bytes: u64, pending: &Pending) {
        if self.redeem(address, pending) {
            return;
        }
        let Some((base, extent)) = self.extents.use_changed(address, -(bytes as i64)) else { return };
        let mut astray: SmallVec<[(Key, u64); 2]> = SmallVec::new();
        let memories = &mut self.memories;
        let freed = extent.touched(address, bytes).filter_map(|(part, key)| {
            let length = part.end - part.start;
            let (tier, home) = memories.change(key, |memory| {
                memory.used = memory.used.saturating_sub(length);
                (memory.tier, memory.home())
            })?;
            astray.extend(home.map(|home| (key, home)));
            Some((part, tier))
        });
        let (class, rank, range) = (extent.class, extent.rank(), base..base + extent.bytes);
        for (part, tier) in one_a_tier(freed) {
            let bytes = part.end - part.start;
            self.runs.give(part.start, Run { bytes, class, tier, rank, pending: pending.clone() }, &range);
        }
        astray.into_iter().for_each(|(key, home)| self.go(key, home));
    }

    /// Makes an idle handle active in another of its mappings.
    fn go(&mut self, key: Key, address: u64) {
        let pending = self.deactivate(key);
        self.activate(key, address, &pending);
    }

    fn give(&mut self, part: Range<u64>, key: Key, pending: &Pending) {
        let (Some(memory), Some((base, extent))) = (self.memories.get(key), self.extents.at(part.start))
        else {
            debug_assert!(false, "no handle or extent at {:#x}", part.start);
            return;
        };
        let (bytes, tier, class, rank) = (part.end - part.start, memory.tier, extent.class, extent.rank());
        let range = base..base + extent.bytes;
        self.runs.give(part.start, Run { bytes, class, tier, rank, pending: pending.clone() }, &range);
    }

    /// What an idle handle waits for; `None` for nothing.
    pub(crate) fn pending(&self, key: Key) -> Option<&Pending> {
        let (_, run) = self.runs.at(self.memories.get(key)?.active?)?;
        Some(&run.pending)
    }

    /// Makes the mapping at `address` the one that an idle handle's bytes are free under.
    pub(crate) fn activate(&mut self, key: Key, address: u64, pending: &Pending) {
        let Some(bytes) = self.memories.change(key, |memory| {
            memory.active = Some(address);
            memory.bytes
        }) else {
            return;
        };
        self.give(address..address + bytes, key, pending);
    }

    /// Takes an idle handle's bytes out of the free runs. The extent they were free in remembers what may still be
    /// touching it.
    pub(crate) fn deactivate(&mut self, key: Key) -> Pending {
        let taken =
            self.memories.change(key, |memory| memory.active.take().map(|at| (at, memory.bytes))).flatten();
        let found = taken.and_then(|(at, bytes)| Some((at, bytes, self.extents.at_mut(at)?)));
        let Some((address, bytes, (base, extent))) = found else { return Pending::default() };
        let pending = self.runs.take(address, bytes, base + extent.bytes);
        extent.echo.join(&pending);
        pending
    }

    /// Makes every mapping that begins in a stretch active there: all their handles are idle or active there already.
    pub(crate) fn claim(&mut self, stretch: Range<u64>) {
        let mappings: Vec<_> = self.extents.mappings(stretch).collect();
        for (address, mapping) in mappings {
            if self.memories.get(mapping.key).is_some_and(|memory| memory.active != Some(address)) {
                self.go(mapping.key, address);
            }
        }
    }

    /// Gives an idle handle to a plan.
    pub(crate) fn hold(&mut self, key: Key) -> Option<Taken> {
        let was = self.memories.get(key)?.active;
        let pending = self.deactivate(key);
        self.memories.change(key, |memory| {
            memory.held = true;
            Taken { key, raw: memory.raw, tier: memory.tier, bytes: memory.bytes, pending, was }
        })
    }

    /// Puts a handle back as it was before [`Ledger::hold`], or into another of its mappings if that one is gone.
    pub(crate) fn put_back(&mut self, taken: &Taken) {
        let target = self.memories.change(taken.key, |memory| {
            memory.held = false;
            taken.was.filter(|was| memory.mapped.contains(was)).or(memory.mapped.last().copied())
        });
        if let Some(address) = target.flatten() {
            self.activate(taken.key, address, &taken.pending);
        }
    }

    /// Notes a mapping. It is not active.
    pub(crate) fn map(&mut self, key: Key, address: u64) {
        let bytes = self.memories.change(key, |memory| {
            memory.held = false;
            memory.mapped.push(address);
            memory.bytes
        });
        bytes.into_iter().for_each(|bytes| self.extents.map(address, bytes, key));
    }

    /// Forgets a mapping of an idle handle. If it was active there, another of its mappings becomes active.
    pub(crate) fn unmap(&mut self, address: u64) {
        let Some(mapping) = self.extents.unmap(address) else { return };
        let was_active = self.memories.change(mapping.key, |memory| {
            memory.mapped.retain(|mapped| *mapped != address);
            memory.active == Some(address)
        });
        if was_active == Some(true) {
            self.leave(mapping.key);
        }
    }

    fn leave(&mut self, key: Key) {
        let pending = self.deactivate(key);
        let elsewhere = self.memories.get(key).and_then(|memory| memory.mapped.first().copied());
        elsewhere.into_iter().for_each(|address| self.activate(key, address, &pending));
    }

    /// Everything that may still be touching an extent: free runs' and former tenants' points.
    pub(crate) fn touching(&self, base: u64) -> Pending {
        let Some((_, extent)) = self.extents.at(base) else { return Pending::default() };
        let mut pending = extent.echo.clone();
        let mut next = base;
        for (address, mapping) in self.extents.mappings(base..base + extent.bytes) {
            let active = self.memories.get(mapping.key).is_some_and(|memory| memory.active == Some(address));
            if active
                && address >= next
                && let Some((start, run)) = self.runs.at(address)
            {
                pending.join(&run.pending);
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
        while let Some((part, _)) = parts.next_if(|(_, other)| *other == tier) {
            whole.end = part.end;
        }
        Some((whole, tier))
    })
}
