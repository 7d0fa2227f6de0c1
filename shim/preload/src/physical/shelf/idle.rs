//! Memory that lies idle, by kind and in the order in which it became idle, and how much of it is
//! promised.
//!
//! Invariant: of each kind at least as much lies idle as is promised.

use std::collections::{BTreeMap, BTreeSet};

use wm_abi::CUdevice;
use wm_driver::Tier;

use super::kind::MemoryKind;

/// Idle memory, by its number.
#[derive(Debug)]
pub(super) struct Idle {
    /// When it became idle, which.
    kinds: BTreeMap<MemoryKind, BTreeSet<(u64, u64)>>,
    /// Tokens without memory.
    promised: BTreeMap<MemoryKind, usize>,
}

impl Idle {
    pub(super) const fn new() -> Self {
        Self { kinds: BTreeMap::new(), promised: BTreeMap::new() }
    }

    pub(super) fn lay(&mut self, kind: MemoryKind, since: u64, number: u64) {
        self.kinds.entry(kind).or_default().insert((since, number));
    }

    pub(super) fn take(&mut self, kind: MemoryKind, since: u64, number: u64) {
        if let Some(idle) = self.kinds.get_mut(&kind) {
            idle.remove(&(since, number));
        }
    }

    /// How much is promised to no token.
    fn spare(&self, kind: MemoryKind) -> usize {
        self.kinds.get(&kind).map_or(0, BTreeSet::len).saturating_sub(self.promised(kind))
    }

    /// Bytes on a device's tier that are promised to no token.
    pub(super) fn spare_bytes(&self, device: CUdevice, tier: Tier) -> u64 {
        let kinds = self.kinds.keys().filter(|kind| (kind.device, kind.tier) == (device, tier));
        kinds.map(|kind| kind.bytes * self.spare(*kind) as u64).sum()
    }

    /// Promises memory, if some is spare.
    pub(super) fn promise(&mut self, kind: MemoryKind) -> bool {
        let is_spare = self.spare(kind) > 0;
        if is_spare {
            *self.promised.entry(kind).or_default() += 1;
        }
        is_spare
    }

    fn promised(&self, kind: MemoryKind) -> usize {
        self.promised.get(&kind).copied().unwrap_or(0)
    }

    /// A token has got memory, or is no more.
    pub(super) fn keep_promise(&mut self, kind: MemoryKind) {
        if let Some(promised) = self.promised.get_mut(&kind) {
            *promised = promised.saturating_sub(1);
        }
    }

    /// What has been idle longest.
    pub(super) fn oldest(&self, kind: MemoryKind) -> Option<u64> {
        self.kinds.get(&kind)?.first().map(|(_, number)| *number)
    }

    /// The same for all kinds on a device's tier, and what is promised to no token.
    pub(super) fn oldest_spare(&self, device: CUdevice, tier: Tier) -> Option<(MemoryKind, u64)> {
        let is_there = |kind: &MemoryKind| (kind.device, kind.tier) == (device, tier);
        let kinds = self.kinds.iter().filter(|(kind, _)| is_there(kind) && self.spare(**kind) > 0);
        let oldest = kinds.filter_map(|(kind, idle)| Some((*idle.first()?, *kind)));
        oldest.min().map(|((_, number), kind)| (kind, number))
    }

    /// Everything of a device is gone.
    pub(super) fn forget(&mut self, device: CUdevice) {
        self.kinds.retain(|kind, _| kind.device != device);
        self.promised.retain(|kind, _| kind.device != device);
    }
}
