//! Drafts of new extents: the plan that carries out a recipe, its commit and its rollback.
//!
//! Drafting takes the chosen handles out of the ledger and counts the handles to be made as
//! reserved already. A commit turns the draft into an extent with the request's block in it; a
//! rollback puts everything back.

use std::time::Instant;

use wm_driver::Tier;

use crate::books::ledger::{Segments, TakenHandle};
use crate::policy::recipe::Recipe;
use crate::state::State;
use crate::state::grant::Grant;
use crate::vocabulary::plan::{Build, BuildFailure, Built, ExtentPart, Undo};
use crate::vocabulary::request::Request;
use crate::vocabulary::settings::Rules;
use crate::vocabulary::sizes::Class;
use crate::vocabulary::tiers::{TierBytes, only};

/// A part of the extent to be: a handle taken, or one to be made.
#[derive(Debug)]
enum HandleSource {
    Taken(TakenHandle),
    New(Tier, u64),
}

impl HandleSource {
    fn tier(&self) -> Tier {
        match self {
            Self::Taken(taken) => taken.tier,
            Self::New(tier, _) => *tier,
        }
    }

    fn extent_part(&self) -> ExtentPart {
        match self {
            Self::Taken(taken) => ExtentPart::Existing { handle: taken.raw, bytes: taken.bytes },
            Self::New(tier, bytes) => ExtentPart::New { tier: *tier, bytes: *bytes },
        }
    }
}

/// An extent under way.
#[derive(Debug)]
pub(crate) struct Draft {
    sources: Vec<HandleSource>,
    class: Option<Class>,
    /// Address space behind the handles that stays empty.
    gap: u64,
    epoch: u64,
}

impl Draft {
    pub(crate) fn build(&self) -> Build {
        Build { parts: self.sources.iter().map(HandleSource::extent_part).collect(), gap: self.gap }
    }

    fn mapped(&self) -> u64 {
        self.sources.iter().map(|source| source.extent_part().bytes()).sum()
    }

    fn created(&self) -> impl Iterator<Item = (Tier, u64)> {
        self.sources.iter().filter_map(|source| match source {
            HandleSource::New(tier, bytes) => Some((*tier, *bytes)),
            HandleSource::Taken(_) => None,
        })
    }

    /// Bytes that are to be made on a tier.
    pub(crate) fn created_on(&self, tier: Tier) -> u64 {
        self.created().filter(|(made, _)| *made == tier).map(|(_, bytes)| bytes).sum()
    }

    fn created_bytes(&self) -> TierBytes {
        let mut sum = TierBytes::default();
        self.created().for_each(|(tier, bytes)| sum.add(&only(tier, bytes)));
        sum
    }
}

impl State {
    /// Takes the handles that a recipe names. Device parts come first, so that a block's head is on
    /// the device.
    pub(crate) fn draft(&mut self, recipe: &Recipe, class: Option<Class>, rules: &Rules) -> Draft {
        let taken = recipe
            .take
            .iter()
            .filter_map(|key| self.holdings.ledger.take_for_plan(*key))
            .map(HandleSource::Taken);
        let mut sources: Vec<HandleSource> = taken.collect();
        sources.extend(recipe.create.iter().map(|(tier, bytes)| HandleSource::New(*tier, *bytes)));
        sources.sort_by_key(HandleSource::tier);
        let gap = if class.is_none() { rules.granularity } else { 0 };
        let draft = Draft { sources, class, gap, epoch: self.under_way.epoch() };
        self.holdings.plan(&draft.created_bytes());
        self.under_way.begin();
        draft
    }

    /// The extent was made: notes it and sets the request's block aside in it. If the context went
    /// meanwhile, returns the steps that take it apart.
    pub(crate) fn commit(
        &mut self,
        draft: &Draft,
        built: Built,
        request: &Request,
    ) -> Result<Grant, Vec<Undo>> {
        self.under_way.end();
        if draft.epoch != self.under_way.epoch() {
            self.holdings.drop_plan(&draft.created_bytes());
            return Err(built.undo);
        }
        self.holdings.made(&draft.created_bytes());
        self.note_extent(draft, &built);
        Ok(self.grant(request.place(built.base, draft.mapped()), request))
    }

    fn note_extent(&mut self, draft: &Draft, built: &Built) {
        let stitched = draft.sources.iter().any(|source| matches!(source, HandleSource::Taken(_)));
        // An extent that one block has to itself is a view even where all of its handles are new:
        // it is unmapped after the free.
        let view = stitched || draft.class.is_none();
        let made = draft.created_bytes().total();
        if made > 0 {
            self.pool.keep.made(made, Instant::now());
        }
        let late = made > 0 && self.growth.is_late(made, self.holdings.held().total());
        self.holdings.ledger.insert_extent(built.base, draft.mapped() + draft.gap, draft.class, view, late);
        self.counters.stitches += u64::from(stitched);
        let mut address = built.base;
        for (source, handle) in draft.sources.iter().zip(&built.handles) {
            let (key, segments) = match source {
                HandleSource::Taken(taken) => (taken.key, taken.segments.clone()),
                HandleSource::New(tier, bytes) => {
                    self.counters.creates += 1;
                    (self.holdings.ledger.insert_handle(*handle, *tier, *bytes), Segments::default())
                }
            };
            self.holdings.ledger.map(key, address);
            self.holdings.ledger.activate(key, address, segments);
            address += source.extent_part().bytes();
        }
    }

    /// The extent could not be made: everything is as it was, except the steps that could not be
    /// undone.
    pub(crate) fn roll_back(&mut self, draft: Draft, failure: BuildFailure) {
        self.under_way.end();
        self.counters.rollbacks += 1;
        self.holdings.drop_plan(&draft.created_bytes());
        if draft.epoch == self.under_way.epoch() {
            for source in &draft.sources {
                if let HandleSource::Taken(taken) = source {
                    self.holdings.ledger.put_back(taken);
                }
            }
        }
        self.quarantine_uncommitted(failure.not_undone);
    }
}
