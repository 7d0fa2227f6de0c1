//! Physical memory: every handle the manager holds, where it is mapped, and how much of it is used.
//!
//! A handle may be mapped in many extents and is *active* in at most one mapping: the one whose
//! addresses its bytes are used or free under. A handle no block touches is *idle*, unless a plan
//! that is under way holds it or it is barred. Idle handles are kept by tier and size: stitching
//! draws on them.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use wm_driver::{Handle, Tier};

use super::kept::KeptCopies;
use super::keys::{HandleKey, KeySet};
use crate::vocabulary::tiers::{TierBytes, only};

/// One handle.
#[derive(Debug)]
pub(crate) struct HandleRecord {
    pub(crate) raw: Handle,
    pub(crate) tier: Tier,
    pub(crate) bytes: u64,
    /// Bytes under blocks.
    pub(crate) used: u64,
    /// Address of the active mapping.
    pub(crate) active: Option<u64>,
    /// Addresses of all mappings.
    pub(crate) mapped: SmallVec<[u64; 2]>,
    /// A plan under way has taken it.
    pub(crate) held: bool,
    /// Its bytes are in no free run, whether a block uses them or not.
    pub(super) barred: bool,
    /// Other processes use its memory too, so no account of this process counts it. It is barred.
    pub(crate) foreign: bool,
    /// It is a piece's, and counts as that. Its mapping is at an address of the program's own, and
    /// nowhere else.
    pub(crate) adopted: bool,
    /// It has no memory, and nothing is mapped at its addresses: the manager's caller has its
    /// bytes.
    pub(crate) away: bool,
    /// Nothing is mapped at its addresses: its memory is mapped at its staging place alone.
    pub(crate) unmapped: bool,
    /// Where it is mapped for the copies of moves, alone in a reservation, for as long as it lives:
    /// mapping memory of the host takes most of the time that copying it does. Memory of the device
    /// has no such place.
    pub(crate) staging: Option<u64>,
    /// Index of the set that it is in while it is idle.
    set: usize,
}

impl HandleRecord {
    fn is_idle(&self) -> bool {
        self.used == 0 && !self.held && !self.barred && !self.away && !self.unmapped
    }

    /// Bytes of it that count as held.
    pub(crate) fn counted(&self) -> u64 {
        if self.foreign || self.adopted || self.away { 0 } else { self.bytes }
    }

    /// Its oldest mapping, if it is idle and not active there.
    pub(crate) fn primary_mapping(&self) -> Option<u64> {
        let home = self.mapped.first().copied().filter(|_| self.is_idle());
        home.filter(|home| self.active != Some(*home))
    }
}

#[derive(Debug, Default)]
pub(crate) struct HandleTable {
    table: Vec<Option<HandleRecord>>,
    vacant: Vec<u32>,
    /// Sets of idle handles, one a tier and size. Of sizes there are few, and a set once made
    /// stays.
    idle: Vec<KeySet>,
    sets: BTreeMap<(Tier, u64), usize>,
    idle_bytes: TierBytes,
    /// Of idle handles. One that is idle no more has lost its record.
    kept: KeptCopies,
}

impl HandleTable {
    pub(crate) fn get(&self, key: HandleKey) -> Option<&HandleRecord> {
        self.table.get(key.0 as usize)?.as_ref()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (HandleKey, &HandleRecord)> {
        self.table
            .iter()
            .enumerate()
            .filter_map(|(index, memory)| Some((HandleKey(index as u32), memory.as_ref()?)))
    }

    /// Takes a new handle in, idle and not mapped.
    pub(crate) fn insert(&mut self, raw: Handle, tier: Tier, bytes: u64) -> HandleKey {
        let set = self.set(tier, bytes);
        let memory = HandleRecord {
            raw,
            tier,
            bytes,
            used: 0,
            active: None,
            mapped: SmallVec::new(),
            held: false,
            barred: false,
            foreign: false,
            adopted: false,
            away: false,
            unmapped: false,
            staging: None,
            set,
        };
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.table.push(None);
            self.table.len() as u32 - 1
        });
        self.table[index as usize] = Some(memory);
        self.index(HandleKey(index));
        HandleKey(index)
    }

    fn set(&mut self, tier: Tier, bytes: u64) -> usize {
        *self.sets.entry((tier, bytes)).or_insert_with(|| {
            self.idle.push(KeySet::default());
            self.idle.len() - 1
        })
    }

    pub(crate) fn remove(&mut self, key: HandleKey) -> Option<HandleRecord> {
        self.unindex(key);
        self.kept.forget(key);
        let memory = self.table.get_mut(key.0 as usize)?.take()?;
        self.vacant.push(key.0);
        Some(memory)
    }

    /// Changes a handle and keeps the index of idle ones true.
    pub(crate) fn change<T>(
        &mut self,
        key: HandleKey,
        change: impl FnOnce(&mut HandleRecord) -> T,
    ) -> Option<T> {
        let memory = self.table.get_mut(key.0 as usize)?.as_mut()?;
        let was_idle = memory.is_idle();
        let result = change(memory);
        match (was_idle, memory.is_idle()) {
            (true, false) => self.unindex(key),
            (false, true) => self.index(key),
            _ => {}
        }
        Some(result)
    }

    /// Other memory of the same size takes a handle's place. The handle is not idle.
    pub(super) fn swap_memory(&mut self, key: HandleKey, raw: Handle, tier: Tier, staging: Option<u64>) {
        let Some(bytes) = self.get(key).map(|memory| memory.bytes) else { return };
        debug_assert!(!self.is_idle(key), "{key:?} is in the index of another tier");
        let set = self.set(tier, bytes);
        self.kept.forget(key);
        if let Some(memory) = self.table.get_mut(key.0 as usize).and_then(Option::as_mut) {
            (memory.raw, memory.tier, memory.staging, memory.set) = (raw, tier, staging, set);
        }
    }

    fn index(&mut self, key: HandleKey) {
        self.kept.forget(key);
        let Some(&HandleRecord { tier, bytes, set, .. }) = self.get(key) else { return };
        if self.idle[set].insert(key) {
            self.idle_bytes.add(&only(tier, bytes));
        }
    }

    fn unindex(&mut self, key: HandleKey) {
        self.kept.forget(key);
        let Some(&HandleRecord { tier, bytes, set, .. }) = self.get(key) else { return };
        if self.idle[set].remove(key) {
            self.idle_bytes.subtract(&only(tier, bytes));
        }
    }

    /// Idle handles of a tier with their sizes, small ones first.
    pub(crate) fn idle(&self, tier: Tier) -> impl DoubleEndedIterator<Item = (HandleKey, u64)> {
        let sizes = self.sets.range((tier, 0)..=(tier, u64::MAX));
        sizes.flat_map(|((_, bytes), set)| self.idle[*set].iter().map(|key| (key, *bytes)))
    }

    /// Idle handles of a tier and of one size that do not have the bytes of others.
    pub(crate) fn idle_without_copies(&self, tier: Tier, bytes: u64) -> impl Iterator<Item = HandleKey> {
        let set = self.sets.get(&(tier, bytes));
        set.into_iter().flat_map(|set| self.idle[*set].without(self.kept.idle()))
    }

    /// Idle handles that have the bytes of others.
    pub(crate) fn kept(&self) -> &KeptCopies {
        &self.kept
    }

    pub(super) fn kept_mut(&mut self) -> &mut KeptCopies {
        &mut self.kept
    }

    pub(crate) fn is_idle(&self, key: HandleKey) -> bool {
        self.get(key).is_some_and(HandleRecord::is_idle)
    }

    pub(crate) fn idle_bytes(&self) -> TierBytes {
        self.idle_bytes
    }
}
