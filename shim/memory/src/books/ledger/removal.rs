//! What leaves the ledger: handles, mappings and extents, with the steps that take them apart.

use wm_driver::Tier;

use super::{Key, Ledger, Mapping, Memory};
use crate::vocabulary::order::Pending;
use crate::vocabulary::plan::{Steps, Undo};

impl Ledger {
    pub(crate) fn is_idle_on(&self, key: Key, tier: Option<Tier>) -> bool {
        let on_tier = |only| self.memories.get(key).is_some_and(|memory| memory.tier == only);
        self.memories.is_idle(key) && tier.is_none_or(on_tier)
    }

    /// Everything that may still be touching a handle, through any of its mappings.
    pub(crate) fn touching_handle(&self, key: Key) -> Pending {
        let mut pending = self.pending(key);
        for address in self.memories.get(key).iter().flat_map(|memory| &memory.mapped) {
            let echo = self.extents.at(*address).map(|(_, extent)| &extent.echo);
            echo.into_iter().for_each(|echo| pending.join(echo));
        }
        pending
    }

    /// Forgets the extent at `address` if nothing is mapped in it.
    pub(crate) fn remove_if_bare(&mut self, address: u64) -> Option<Undo> {
        let range = self.extents.range(address)?;
        if self.extents.mappings(range.clone()).next().is_some() {
            return None;
        }
        self.extents.remove(range.start);
        Some(Undo::Unreserve { address: range.start, bytes: range.end - range.start })
    }

    pub(crate) fn unmapping(&self, address: u64, mapping: &Mapping) -> Option<Undo> {
        let handle = self.memories.get(mapping.key)?.raw;
        Some(Undo::Unmap { address, bytes: mapping.bytes, handle })
    }

    pub(crate) fn everything(&self, steps: &mut Steps) {
        for (base, extent) in self.extents.all() {
            let mappings = self.extents.mappings(base..base + extent.bytes);
            steps.unmap.extend(mappings.filter_map(|(address, mapping)| self.unmapping(address, &mapping)));
            steps.unreserve.push(Undo::Unreserve { address: base, bytes: extent.bytes });
        }
        let release = |(_, memory): (Key, &Memory)| Undo::Release {
            handle: memory.raw,
            tier: memory.tier,
            bytes: memory.bytes,
        };
        steps.release.extend(self.memories.all().map(release));
    }
}
