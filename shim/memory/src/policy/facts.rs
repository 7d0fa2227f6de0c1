//! What a decision about one request is shown. Borrowed for as long as the decision takes, and never changed by it.

use crate::books::ledger::{HandleKey, Ledger};
use crate::ordering::timeline::Timeline;
use crate::policy::attempt::Attempt;
use crate::vocabulary::order::Pending;
use crate::vocabulary::tiers::TierBytes;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) timeline: &'a Timeline,
    /// Handles held, those included that plans under way will make.
    pub(crate) held: TierBytes,
}

impl Facts<'_> {
    /// May the request have memory that waits for `pending`: now, or, where there is no other, after its stream was ordered
    /// behind events?
    pub(crate) fn is_usable(&self, attempt: &Attempt, pending: &Pending) -> bool {
        let user = attempt.request.order;
        self.timeline.is_ready(user, pending)
            || attempt.may_order && self.timeline.can_be_ordered(user, pending)
    }

    /// May the request have an idle handle?
    pub(crate) fn can_take(&self, attempt: &Attempt, key: HandleKey) -> bool {
        self.ledger.handles().is_idle(key)
            && self.ledger.is_usable(key, |pending| self.is_usable(attempt, pending))
    }
}
