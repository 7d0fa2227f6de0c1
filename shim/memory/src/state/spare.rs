//! Drafts of idle handles that moves need.

use wm_driver::{Handle, Tier};

use crate::policy::attempt::Room;
use crate::policy::swap::may_make;
use crate::state::State;
use crate::vocabulary::moves::MoveRefusal;
use crate::vocabulary::plan::Undo;
use crate::vocabulary::settings::Rules;
use crate::vocabulary::tiers::only;

/// A handle that is being made.
#[derive(Debug)]
pub(crate) struct SpareDraft {
    tier: Tier,
    bytes: u64,
    epoch: u64,
}

impl State {
    pub(crate) fn draft_spare(
        &mut self,
        tier: Tier,
        bytes: u64,
        room: Room,
        rules: &Rules,
    ) -> Result<SpareDraft, MoveRefusal> {
        if self.fixed {
            return Err(MoveRefusal::Fixed);
        }
        if !may_make(&self.facts(), room, rules, (tier, bytes)) {
            return Err(MoveRefusal::Full);
        }
        self.holdings.plan(&only(tier, bytes));
        self.under_way.begin();
        Ok(SpareDraft { tier, bytes, epoch: self.under_way.epoch() })
    }

    /// The handle was made, and mapped for moves. If the context went meanwhile, returns the steps
    /// that take it apart.
    pub(crate) fn commit_spare(
        &mut self,
        draft: &SpareDraft,
        handle: Handle,
        staging: Option<u64>,
    ) -> Vec<Undo> {
        let SpareDraft { tier, bytes, epoch } = *draft;
        self.under_way.end();
        if epoch != self.under_way.epoch() {
            self.holdings.drop_plan(&only(tier, bytes));
            let mapping = staging.into_iter().flat_map(|at| Undo::of_lone_mapping(at, bytes, handle));
            return mapping.chain([Undo::Release { handle, tier, bytes }]).collect();
        }
        self.holdings.made(&only(tier, bytes));
        let key = self.holdings.ledger.insert_handle(handle, tier, bytes);
        self.holdings.ledger.stage(key, staging);
        Vec::new()
    }

    /// It could not be made.
    pub(crate) fn roll_back_spare(&mut self, draft: &SpareDraft) {
        self.under_way.end();
        self.holdings.drop_plan(&only(draft.tier, draft.bytes));
    }
}
