//! Memory that can be given back: idle handles, idle views, and at the end of a context everything.
//!
//! Each function takes its choice out of the ledger and returns the steps that take it apart:
//! unmappings first, then reservations that have become empty, then handles.

use std::ops::Range;
use std::sync::Arc;

use wm_driver::Tier;

use crate::ordering::fence::{Fence, Query};
use crate::policy::growth::Growth;
use crate::policy::scarcity::Scarcity;
use crate::state::State;
use crate::vocabulary::plan::{Steps, Undo};

impl State {
    /// Takes idle handles of at least `bytes`, large ones first, that nothing touches any more.
    pub(crate) fn take_idle(&mut self, tier: Option<Tier>, bytes: u64) -> Vec<Undo> {
        let timeline = &self.timeline;
        self.holdings.free_stranded(|point| timeline.is_past(point));
        let mut steps = self.earlier_steps();
        let mut left = bytes;
        for (key, length) in self.holdings.ledger.idle_by_size(tier) {
            if left == 0 {
                break;
            }
            if self.timeline.all_past(&self.holdings.ledger.touching_handle(key)) {
                self.holdings.ledger.take_handle(key, &mut steps);
                left = left.saturating_sub(length);
            }
        }
        steps.in_order()
    }

    /// Steps that failed before. They come first: a reservation may be about to go in which one of
    /// them left a mapping.
    pub(super) fn earlier_steps(&mut self) -> Steps {
        Steps { unmap: self.holdings.take_quarantined(), ..Steps::default() }
    }

    /// Takes the views beyond `keep` that have been idle longest and that nothing touches any more.
    pub(crate) fn take_views(&mut self, keep: usize) -> Vec<Undo> {
        let excess = self.holdings.ledger.extents().idle_views().len().saturating_sub(keep);
        if excess == 0 || self.keeps_mappings() {
            return Vec::new();
        }
        let longest: Vec<u64> = self.holdings.ledger.extents().idle_views().collect();
        self.take_settled_views(longest, excess)
    }

    /// Takes the idle views that map the memory of a range on the device which would move next, up
    /// to `most` bytes: each place of it would have to be mapped anew, and the idle memory in such
    /// a view could not take its place.
    pub(crate) fn take_views_of(&mut self, range: &Range<u64>, most: u64) -> Vec<Undo> {
        if self.keeps_mappings() {
            return Vec::new();
        }
        let views = self.holdings.ledger.idle_views_of(range, Tier::Device, most);
        self.take_settled_views(views, usize::MAX)
    }

    fn keeps_mappings(&self) -> bool {
        self.under_way.is_pinned() || self.under_way.is_borrowed()
    }

    /// Takes the first `most` of these views that nothing touches any more.
    fn take_settled_views(&mut self, views: Vec<u64>, most: usize) -> Vec<Undo> {
        let ledger = &self.holdings.ledger;
        let settled = |base: &u64| !ledger.bars(*base) && self.timeline.all_past(&ledger.touching(*base));
        let chosen: Vec<u64> = views.into_iter().filter(settled).take(most).collect();
        if chosen.is_empty() {
            return Vec::new();
        }
        self.counters.evictions += chosen.len() as u64;
        let mut steps = self.earlier_steps();
        chosen.into_iter().for_each(|base| self.holdings.ledger.take_view(base, &mut steps));
        steps.in_order()
    }

    /// Forgets everything but counters and settings. Plans under way will find that their epoch is
    /// over.
    pub(crate) fn forget_all(&mut self) -> (Vec<Undo>, Vec<Arc<Fence>>) {
        let mut steps = self.orphan_pieces();
        steps.extend(self.holdings.forget_all());
        self.program.forget_all();
        self.under_way.end_epoch();
        self.scarcity = Scarcity::default();
        self.growth = Growth::default();
        self.pool.forget_idle();
        self.count_idle_pieces();
        self.fixed = false;
        self.staying.clear();
        self.in_graphs.clear();
        self.unified.clear();
        (steps, self.timeline.clear())
    }

    /// How to learn whether idle views may go, where there are more than `keep`.
    pub(crate) fn overdue_views(&mut self, keep: usize) -> Vec<Query> {
        let excess = self.holdings.ledger.extents().idle_views().len() > keep;
        if excess { self.timeline.queries(None, usize::MAX) } else { Vec::new() }
    }
}
