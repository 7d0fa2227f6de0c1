//! Joints under way: the bytes that are lent to one while it is made, its commit and its rollback. `policy/joint.rs` says what
//! a joint is.

use wm_driver::Handle;

use crate::books::ledger::{HandleKey, Stretch};
use crate::policy::attempt::Attempt;
use crate::policy::joint;
use crate::state::State;
use crate::state::grant::Grant;
use crate::vocabulary::order::Pending;
use crate::vocabulary::plan::{Build, BuildFailure, Built, ExtentPart, Undo};
use crate::vocabulary::request::Request;
use crate::vocabulary::sizes::Class;
use crate::vocabulary::tiers::TierBytes;

/// A joint under way: its bytes are lent to it.
#[derive(Debug)]
pub(crate) struct Joint {
    row: Vec<(HandleKey, Handle, u64)>,
    /// Where the block begins in it.
    block_offset: u64,
    stretches: Vec<Stretch>,
    tiers: TierBytes,
    pending: Pending,
    epoch: u64,
}

impl Joint {
    pub(crate) fn build(&self) -> Build {
        let part = |(_, handle, bytes): &(HandleKey, Handle, u64)| ExtentPart::Existing {
            handle: *handle,
            bytes: *bytes,
        };
        Build { parts: self.row.iter().map(part).collect(), gap: 0 }
    }
}

impl State {
    /// A block in a joint that exists.
    pub(super) fn reuse_joint(&mut self, attempt: &Attempt) -> Option<Grant> {
        let (address, stretches) = joint::existing(&self.facts(), attempt)?;
        let (tiers, pending) = self.holdings.ledger.lend(&stretches);
        self.holdings.ledger.assign_loan(&stretches, address);
        self.counters.reuses += 1;
        Some(self.set_aside(address, &attempt.request, tiers, pending))
    }

    /// Lends the bytes of a new joint to it.
    pub(super) fn draft_joint(&mut self, attempt: &Attempt) -> Option<Joint> {
        let (row, block_offset) = joint::row(&self.facts(), attempt)?;
        let stretches = self.holdings.ledger.where_booked(&row, block_offset, attempt.request.bytes)?;
        let with_handle =
            |key| self.holdings.ledger.handles().get(key).map(|memory| (key, memory.raw, memory.bytes));
        let row = row.into_iter().map(with_handle).collect::<Option<Vec<_>>>()?;
        let (tiers, pending) = self.holdings.ledger.lend(&stretches);
        self.under_way.begin();
        Some(Joint { row, block_offset, stretches, tiers, pending, epoch: self.under_way.epoch() })
    }

    /// The joint was made: its block is set aside in it. If the context went meanwhile, returns the steps that take it
    /// apart.
    pub(crate) fn commit_joint(
        &mut self,
        joint: Joint,
        built: Built,
        request: &Request,
    ) -> Result<Grant, Vec<Undo>> {
        self.under_way.end();
        if joint.epoch != self.under_way.epoch() {
            return Err(built.undo);
        }
        let bytes = joint.row.iter().map(|(_, _, bytes)| bytes).sum();
        self.holdings.ledger.insert_extent(built.base, bytes, Class::Joint, true, false);
        let mut address = built.base;
        for (key, _, bytes) in &joint.row {
            self.holdings.ledger.map(*key, address);
            address += bytes;
        }
        self.counters.joints += 1;
        self.holdings.ledger.assign_loan(&joint.stretches, built.base + joint.block_offset);
        Ok(self.set_aside(built.base + joint.block_offset, request, joint.tiers, joint.pending))
    }

    /// The joint could not be made: what was lent is free again.
    pub(crate) fn roll_back_joint(&mut self, joint: &Joint, failure: BuildFailure) {
        self.under_way.end();
        self.counters.rollbacks += 1;
        if joint.epoch == self.under_way.epoch() {
            self.holdings.ledger.cancel_loan(&joint.stretches, &joint.pending);
        }
        self.quarantine_uncommitted(failure.not_undone);
    }
}
