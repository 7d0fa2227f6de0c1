//! Removal from the ledger: the handles, mappings and extents that leave, with the steps that take
//! them apart.

use wm_driver::Tier;

use super::{HandleKey, HandleRecord, Ledger, Mapping};
use crate::vocabulary::order::Pending;
use crate::vocabulary::plan::{Steps, Undo};

impl Ledger {
    /// Idle handles and their sizes, large ones first. Device memory first: other requests wait for
    /// it.
    pub(crate) fn idle_by_size(&self, tier: Option<Tier>) -> Vec<(HandleKey, u64)> {
        let idle = self.handles.all().filter(|(key, _)| self.is_idle_on(*key, tier));
        let mut idle: Vec<_> =
            idle.map(|(key, memory)| (memory.tier, u64::MAX - memory.bytes, key)).collect();
        idle.sort_unstable();
        idle.into_iter().map(|(_, rank, key)| (key, u64::MAX - rank)).collect()
    }

    /// Forgets an idle handle and its mappings.
    pub(crate) fn take_handle(&mut self, key: HandleKey, steps: &mut Steps) {
        let Some(memory) = self.handles.get(key) else { return };
        let (handle, tier, bytes, counted) = (memory.raw, memory.tier, memory.bytes, memory.counted());
        unstage(memory, steps);
        for address in memory.mapped.clone() {
            self.unmap(address);
            steps.unmap.push(Undo::Unmap { address, bytes, handle });
            steps.unreserve.extend(self.remove_if_bare(address));
        }
        self.handles.remove(key);
        steps.release.push(Undo::Release { handle, tier, bytes: counted });
    }

    /// Forgets the mappings of an extent without a block, and the extent.
    pub(crate) fn take_view(&mut self, base: u64, steps: &mut Steps) {
        let Some(range) = self.extents.range(base) else { return };
        let mappings: Vec<_> = self.extents.mappings(range).collect();
        for (address, mapping) in mappings {
            steps.unmap.extend(self.unmapping(address, &mapping));
            self.unmap(address);
        }
        steps.unreserve.extend(self.remove_if_bare(base));
    }

    fn is_idle_on(&self, key: HandleKey, tier: Option<Tier>) -> bool {
        let on_tier = |only| self.handles.get(key).is_some_and(|memory| memory.tier == only);
        self.handles.is_idle(key) && tier.is_none_or(on_tier)
    }

    /// Everything that may still be touching a handle, through any of its mappings.
    pub(crate) fn touching_handle(&self, key: HandleKey) -> Pending {
        let mut pending = self.pending(key);
        for address in self.handles.get(key).iter().flat_map(|memory| &memory.mapped) {
            let retired_uses = self.extents.at(*address).map(|(_, extent)| &extent.retired_uses);
            retired_uses.into_iter().for_each(|retired_uses| pending.join(retired_uses));
        }
        pending
    }

    /// Forgets the extent at `address` if nothing is mapped in it.
    pub(super) fn remove_if_bare(&mut self, address: u64) -> Option<Undo> {
        let range = self.extents.range(address)?;
        if self.extents.mappings(range.clone()).next().is_some() {
            return None;
        }
        self.extents.remove(range.start);
        Some(Undo::Unreserve { address: range.start, bytes: range.end - range.start })
    }

    /// The step that ends a mapping; `None`: there is none at those addresses.
    fn unmapping(&self, address: u64, mapping: &Mapping) -> Option<Undo> {
        let memory = self.handles.get(mapping.key).filter(|memory| !memory.away && !memory.unmapped)?;
        Some(Undo::Unmap { address, bytes: mapping.bytes, handle: memory.raw })
    }

    pub(crate) fn everything(&self, steps: &mut Steps) {
        for (base, extent) in self.extents.all() {
            let mappings = self.extents.mappings(base..base + extent.bytes);
            steps.unmap.extend(mappings.filter_map(|(address, mapping)| self.unmapping(address, &mapping)));
            steps.unreserve.push(Undo::Unreserve { address: base, bytes: extent.bytes });
        }
        for (_, memory) in self.handles.all() {
            unstage(memory, steps);
            let (handle, tier, bytes) = (memory.raw, memory.tier, memory.counted());
            steps.release.push(Undo::Release { handle, tier, bytes });
        }
    }
}

/// The end of a handle's staging place.
fn unstage(memory: &HandleRecord, steps: &mut Steps) {
    let Some(address) = memory.staging else { return };
    let [unmap, unreserve] = Undo::of_lone_mapping(address, memory.bytes, memory.raw);
    steps.unmap.push(unmap);
    steps.unreserve.push(unreserve);
}
