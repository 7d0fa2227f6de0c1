//! The facts that a decision about one request reads. They are borrowed for as long as the decision
//! takes, and never changed by it.

use wm_driver::Tier;

use crate::books::ledger::{HandleKey, Ledger};
use crate::ordering::timeline::Timeline;
use crate::policy::attempt::Attempt;
use crate::vocabulary::order::Pending;
use crate::vocabulary::tiers::TierBytes;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) timeline: &'a Timeline,
    /// Bytes of blocks' handles and of pieces, those included that plans under way will make.
    pub(crate) held: TierBytes,
    /// The most that may be held on the device.
    pub(crate) device_limit: u64,
    /// New handles are of the few sizes that moves exchange.
    pub(crate) expects_moves: bool,
}

impl Facts<'_> {
    /// Bytes held on a tier, those included that plans under way will make. Each other GPU has a
    /// sum of its own, and the bytes that plans will make count for all of them.
    pub(crate) fn held_on(&self, tier: Tier) -> u64 {
        let Tier::Peer(_) = tier else { return self.held.on(tier) };
        let others = self
            .ledger
            .handles()
            .all()
            .map(|(_, memory)| memory)
            .filter(|memory| matches!(memory.tier, Tier::Peer(_)) && memory.tier != tier);
        self.held.peer.saturating_sub(others.map(|memory| memory.counted()).sum())
    }

    /// May the request have memory that waits for `pending`: now, or, where there is no other,
    /// after its stream was ordered behind events?
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
