//! Grants: memory set aside for a request, until the calls that make it usable have succeeded or
//! failed.
//!
//! Invariant: a granted block is out of the free runs and not live. [`State::confirm`] makes it
//! live, [`State::withdraw`] free again; where the context went meanwhile, neither changes
//! anything.

use std::sync::Arc;

use crate::books::blocks::BlockRecord;
use crate::ordering::fence::Fence;
use crate::state::State;
use crate::vocabulary::order::Pending;
use crate::vocabulary::request::Request;

/// Memory set aside for a request, and the fences that its stream must be ordered behind before the
/// program may have it.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) address: u64,
    pending: Pending,
    /// `None`: a fence was given up meanwhile, so that the memory cannot be had.
    pub(crate) needs: Option<Vec<Arc<Fence>>>,
    epoch: u64,
}

impl State {
    /// Sets free addresses aside for a request.
    pub(super) fn grant(&mut self, address: u64, request: &Request) -> Grant {
        let (tiers, pending) = self.holdings.ledger.occupy(address, request.bytes);
        self.program.insert(BlockRecord::new(address, tiers, request.class.is_none()));
        let needs = self.timeline.needs(request.order, &pending);
        self.under_way.begin();
        Grant { address, pending, needs, epoch: self.under_way.epoch() }
    }

    /// The grant's calls succeeded. `false` if the context went meanwhile.
    pub(crate) fn confirm(&mut self, grant: &Grant, request: &Request) -> bool {
        self.under_way.end();
        let current = grant.epoch == self.under_way.epoch();
        if current {
            self.program.give_out(grant.address, request, &mut self.counters);
        }
        current
    }

    /// The grant's calls failed: its memory is free again, as it was, and the request is not met.
    pub(crate) fn withdraw(&mut self, grant: &Grant) -> bool {
        self.under_way.end();
        if grant.epoch == self.under_way.epoch()
            && let Some(piece) = self.program.remove(grant.address)
        {
            let mut pending = grant.pending.clone();
            pending.blur();
            self.holdings.ledger.vacate(grant.address, piece.bytes(), &pending);
        }
        false
    }
}
