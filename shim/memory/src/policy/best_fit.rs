//! Best fit: blocks cut from free runs, without a call of the driver.

use std::ops::Range;

use wm_driver::Tier;

use crate::books::ledger::runs::{ALL, Ranks};
use crate::policy::attempt::Attempt;
use crate::state::State;
use crate::state::decide::Decision;
use crate::vocabulary::order::Pending;
use crate::vocabulary::sizes::{CANDIDATES, Class, PACKED};

impl State {
    /// Best fit in the free runs of the first tier that has one.
    pub(crate) fn cut(&mut self, attempt: &Attempt, tiers: &[Tier], ranks: &Ranks) -> Option<Decision> {
        tiers.iter().find_map(|tier| self.cut_from(attempt, attempt.request.class, *tier, ranks))
    }

    /// Better a small block among large ones, or the other way round, than none.
    pub(crate) fn trespass(&mut self, attempt: &Attempt) -> Option<Decision> {
        PACKED.iter().find_map(|class| self.cut_from(attempt, *class, Tier::Device, &ALL))
    }

    fn cut_from(&mut self, attempt: &Attempt, class: Class, tier: Tier, ranks: &Ranks) -> Option<Decision> {
        if attempt.request.class == Class::Guarded {
            return None;
        }
        let run = self.best_fit(attempt, class, tier, ranks)?;
        let address =
            if class < Class::Large { self.outermost(&run, attempt.request.bytes) } else { run.start };
        self.counters.splits += 1;
        Some(Decision::Grant(self.grant(address, &attempt.request)))
    }

    /// Where in a run a small block leaves an end of the handle free when it goes: ends can be joined, see `joint`.
    fn outermost(&self, run: &Range<u64>, bytes: u64) -> u64 {
        let at_end = |extent: Range<u64>| extent.start < run.start && extent.end == run.end;
        if self.ledger.extents.range(run.start).is_some_and(at_end) { run.end - bytes } else { run.start }
    }

    /// The usable stretch of the best fitting run that has one.
    fn best_fit(&self, attempt: &Attempt, class: Class, tier: Tier, ranks: &Ranks) -> Option<Range<u64>> {
        let bytes = attempt.request.bytes;
        let fitting = self.ledger.runs.fitting(class, tier, bytes, ranks).take(CANDIDATES);
        let usable = |pending: &Pending| self.is_usable(attempt, pending);
        fitting
            .filter_map(|(start, run)| Some((start, run.segments.usable(bytes, usable)?)))
            .next()
            .map(|(start, stretch)| start + stretch.start..start + stretch.end)
    }

    /// May the request have memory that waits for `pending`: now, or, where there is no other, after its stream was ordered
    /// behind events?
    pub(crate) fn is_usable(&self, attempt: &Attempt, pending: &Pending) -> bool {
        let user = attempt.request.order;
        self.timeline.is_ready(user, pending)
            || attempt.may_order && self.timeline.can_be_ordered(user, pending)
    }
}
