//! What can be given back: idle handles, idle views, and at the end of a context everything.
//!
//! Each function takes its choice out of the ledger and returns the steps that take it apart: unmappings first, then
//! reservations that have become empty, then handles.

use std::sync::Arc;

use wm_driver::Tier;

use crate::books::ledger::Key;
use crate::ordering::fence::{Doubt, Fence};
use crate::policy::growth::Growth;
use crate::state::State;
use crate::vocabulary::plan::{Steps, Undo};

impl State {
    /// Takes idle handles of at least `bytes`, large ones first, that nothing touches any more.
    pub(crate) fn take_idle(&mut self, tier: Option<Tier>, bytes: u64) -> Vec<Undo> {
        let mut steps =
            Steps { unmap: Vec::new(), unreserve: Vec::new(), release: self.holdings.take_quarantined() };
        let mut left = bytes;
        for (key, length) in self.idle_by_size(tier) {
            if left == 0 {
                break;
            }
            if self.timeline.all_past(&self.holdings.ledger.touching_handle(key)) {
                self.take_handle(key, &mut steps);
                left = left.saturating_sub(length);
            }
        }
        steps.in_order()
    }

    /// Device memory first: it is what others wait for.
    fn idle_by_size(&self, tier: Option<Tier>) -> Vec<(Key, u64)> {
        let idle = self
            .holdings
            .ledger
            .memories
            .all()
            .filter(|(key, _)| self.holdings.ledger.is_idle_on(*key, tier));
        let mut idle: Vec<_> =
            idle.map(|(key, memory)| (memory.tier, u64::MAX - memory.bytes, key)).collect();
        idle.sort_unstable();
        idle.into_iter().map(|(_, rank, key)| (key, u64::MAX - rank)).collect()
    }

    fn take_handle(&mut self, key: Key, steps: &mut Steps) {
        let Some(memory) = self.holdings.ledger.memories.get(key) else { return };
        let (handle, tier, bytes) = (memory.raw, memory.tier, memory.bytes);
        for address in memory.mapped.clone() {
            self.holdings.ledger.unmap(address);
            steps.unmap.push(Undo::Unmap { address, bytes, handle });
            steps.unreserve.extend(self.holdings.ledger.remove_if_bare(address));
        }
        self.holdings.ledger.memories.remove(key);
        steps.release.push(Undo::Release { handle, tier, bytes });
    }

    /// Takes the views beyond `keep` that have been idle longest and that nothing touches any more.
    pub(crate) fn take_views(&mut self, keep: usize) -> Vec<Undo> {
        let excess = self.holdings.ledger.extents.idle_views().len().saturating_sub(keep);
        if excess == 0 || self.under_way.is_pinned() {
            return Vec::new();
        }
        let settled = |base: &u64| self.timeline.all_past(&self.holdings.ledger.touching(*base));
        let chosen: Vec<u64> =
            self.holdings.ledger.extents.idle_views().filter(settled).take(excess).collect();
        self.counters.evictions += chosen.len() as u64;
        let mut steps = Steps::default();
        chosen.into_iter().for_each(|base| self.take_view(base, &mut steps));
        steps.in_order()
    }

    fn take_view(&mut self, base: u64, steps: &mut Steps) {
        let Some(range) = self.holdings.ledger.extents.range(base) else { return };
        let mappings: Vec<_> = self.holdings.ledger.extents.mappings(range).collect();
        for (address, mapping) in mappings {
            steps.unmap.extend(self.holdings.ledger.unmapping(address, &mapping));
            self.holdings.ledger.unmap(address);
        }
        steps.unreserve.extend(self.holdings.ledger.remove_if_bare(base));
    }

    /// Forgets everything but counters and settings. Plans under way will find that their epoch is over.
    pub(crate) fn forget_all(&mut self) -> (Vec<Undo>, Vec<Arc<Fence>>) {
        let steps = self.holdings.forget_all();
        self.program.forget_all();
        self.under_way.end_epoch();
        self.scarcity.end();
        self.growth = Growth::default();
        (steps, self.timeline.clear())
    }

    /// How to learn whether idle views may go, where there are more than `keep`.
    pub(crate) fn overdue_views(&mut self, keep: usize) -> Vec<Doubt> {
        let excess = self.holdings.ledger.extents.idle_views().len() > keep;
        if excess { self.timeline.doubts(None, usize::MAX) } else { Vec::new() }
    }
}
