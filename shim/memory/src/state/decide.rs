//! One decision about one request: the next thing to do, taken under the lock without a call of the
//! driver.
//!
//! The order of preference is the list in [`State::decide`]. A request is decided again until it is
//! met: each round either meets it, or notes something new in the attempt (events that are done,
//! room that is left, a tier that proved full, a stream that cannot wait), so the rounds come to an
//! end.

use std::sync::Arc;
use std::time::Instant;

use wm_driver::{OomAnswer, Tier};

use crate::books::free_cache::FlushScope;
use crate::books::ledger::run::{ALL, EARLY, LATE, LateFilter};
use crate::ordering::fence::{Fence, Query};
use crate::policy::attempt::{Attempt, HostFigure};
use crate::policy::best_fit::best_fit;
use crate::policy::recipe::{NewHandles, allowance, recipe};
use crate::policy::reuse::oldest_idle;
use crate::state::State;
use crate::state::draft::Draft;
use crate::state::grant::Grant;
use crate::vocabulary::error::{OverflowVerdict, Shortage};
use crate::vocabulary::order::{Order, Pending};
use crate::vocabulary::request::FirstTier;
use crate::vocabulary::settings::Rules;
use crate::vocabulary::sizes::{Class, DEVICE_PART, QUERIES};

/// The next step for a request.
#[derive(Debug)]
pub(crate) enum Decision {
    /// None: the request has its memory.
    Met(u64),
    /// Make the granted memory usable, with events if there are needs.
    Grant(Grant),
    /// Make an extent.
    Build(Draft),
    /// Answer a question, then decide again.
    FindOut(Question),
    /// Every allowed tier is full.
    Full(Box<Shortage>),
}

/// Facts that a decision needs first.
#[derive(Debug)]
pub(crate) enum Question {
    /// The progress of streams.
    Progress(Vec<Query>),
    /// Whether one of these events is done within a limited time.
    Wait(Vec<Arc<Fence>>),
    /// The memory that the device has left.
    Room,
    /// The memory that the host has left.
    Host(HostFigure),
    /// The tiers that the caller can use.
    Caller,
    /// The end of a plan of another thread that was under way in this generation.
    Busy(u64),
    /// The end of a plan, of any device, that makes memory of the host.
    HostPlan(u64),
}

impl State {
    /// The next step for a request. Cheap steps come before expensive ones, the device before other
    /// tiers, and a wait of the host is the last step before a refusal.
    pub(crate) fn decide(&mut self, attempt: &mut Attempt, rules: &Rules) -> Decision {
        self.forget_past();
        self.timeline.note_user(attempt.request.order);
        // A request without a stream queries events before it searches, so that the result does not
        // depend on earlier queries of other threads.
        if attempt.request.order == Order::Device
            && let Some(question) = self.query_some(attempt)
        {
            return question;
        }
        // Little memory is left: blocks in the free cache would make the fit of other requests
        // worse.
        if self.is_pressed() {
            self.flush(FlushScope::All);
        }
        if attempt.request.first_tier == FirstTier::Host {
            return self
                .on_host(attempt, rules)
                .or_else(|| self.query_all(attempt))
                .or_else(|| self.on_host(attempt, rules))
                .unwrap_or_else(|| self.refuse(attempt, rules));
        }
        self.on_device(attempt, rules)
            // The device seems full: the progress of any stream may change that, and queries cost
            // less than the steps below.
            .or_else(|| self.query_all(attempt))
            // Slow memory, or a wait of the GPU: both are better than a wait of the host.
            .or_else(|| self.slowly(attempt, rules))
            // A wait of the host: better than a refusal.
            .or_else(|| self.wait(attempt))
            .unwrap_or_else(|| self.refuse(attempt, rules))
    }

    /// A wait of the GPU for another stream's free is better than slow memory. Not so where the
    /// host may hold the other stream until this one has gone on: where it is known to hold one,
    /// and where the limit was changed while the program runs, since with the limit that it began
    /// with the stream would not wait.
    fn slowly(&mut self, attempt: &mut Attempt, rules: &Rules) -> Option<Decision> {
        if self.limits.is_changed || attempt.may_be_held {
            return self.elsewhere(attempt, rules).or_else(|| self.behind_others(attempt, rules));
        }
        self.behind_others(attempt, rules).or_else(|| self.elsewhere(attempt, rules))
    }

    /// Device memory that is ready, or new.
    fn on_device(&mut self, attempt: &mut Attempt, rules: &Rules) -> Option<Decision> {
        let device = &[Tier::Device][..];
        // Late memory is used after all other memory that needs no call. Where little is left, it
        // is used like all other.
        let first = if self.is_pressed() { &ALL } else { &EARLY };
        // No call at all.
        self.best_fit(attempt, device, first)
            // A few event queries, once a request: memory that other streams freed may be ready.
            .or_else(|| self.query_some(attempt))
            // Flushing costs other requests their hits, but no call.
            .or_else(|| self.best_fit_flushed(attempt, device, first))
            // Extents that exist need bookkeeping only.
            .or_else(|| self.reuse(attempt, device))
            .or_else(|| self.best_fit(attempt, device, &LATE))
            // Mapping idle handles costs less than making new ones, and takes no memory from
            // others.
            .or_else(|| self.stitch(attempt, rules, device, NewHandles::None))
            .or_else(|| (!self.seems_full(attempt)).then(|| self.create(attempt, rules)).flatten())
            // A small block among large ones pins memory that could be stitched: better than no
            // block.
            .or_else(|| self.best_fit_any_class(attempt))
    }

    /// Host memory, if the request asks for it, idle or new.
    fn on_host(&mut self, attempt: &mut Attempt, rules: &Rules) -> Option<Decision> {
        let host = &[Tier::Host][..];
        if !rules.settings.overflow.contains(&Tier::Host) {
            return None;
        }
        let Some(room) = attempt.room else { return Some(Decision::FindOut(Question::Room)) };
        if room.host_figure != HostFigure::Current {
            return Some(Decision::FindOut(Question::Host(HostFigure::Current)));
        }
        self.best_fit(attempt, host, &ALL)
            .or_else(|| self.reuse(attempt, host))
            .or_else(|| self.stitch(attempt, rules, host, NewHandles::AsNeeded))
    }

    /// The device is full. Uses memory that another stream has freed and may still be using: the
    /// requesting stream waits on the GPU for that free, and for no later work, if the program's
    /// pool allows that.
    fn behind_others(&mut self, attempt: &mut Attempt, rules: &Rules) -> Option<Decision> {
        let order = attempt.request.order;
        if attempt.cannot_order || self.forbids_dependencies || !self.timeline.has_exact(order) {
            return None;
        }
        // New memory is preferred to a wait, so the free memory must be known first.
        if attempt.room.is_none() {
            return Some(Decision::FindOut(Question::Room));
        }
        let device = &[Tier::Device][..];
        attempt.may_order = true;
        // The same steps again, with this memory counted as usable.
        let found = self
            .best_fit(attempt, device, &ALL)
            .or_else(|| self.reuse(attempt, device))
            .or_else(|| self.stitch(attempt, rules, device, NewHandles::None))
            .or_else(|| self.create(attempt, rules))
            .or_else(|| self.best_fit_any_class(attempt));
        attempt.may_order = false;
        found
    }

    /// Memory that is not, or not all, on the device, where that is allowed.
    fn elsewhere(&mut self, attempt: &mut Attempt, rules: &Rules) -> Option<Decision> {
        // A handle of the device that is far too large: better than slow memory.
        if let Some(decision) = self.oversized(attempt, rules) {
            return Some(decision);
        }
        if attempt.oom_answer.is_none() {
            return Some(Decision::FindOut(Question::Caller));
        }
        // Existing memory is preferred to new memory, but not to a good part on the device: that is
        // used more often than it is allocated.
        let part = (attempt.request.bytes / DEVICE_PART).max(rules.granularity);
        if attempt.room.is_none() && self.scarcity.left(self.holdings.held().device) >= part {
            return Some(Decision::FindOut(Question::Room));
        }
        let device_first = allowance(&self.facts(), attempt, rules, Tier::Device) >= part;
        device_first
            .then(|| self.overflow_anew(attempt, rules))
            .flatten()
            .or_else(|| self.overflow(attempt, rules))
            .or_else(|| self.create(attempt, rules))
            .or_else(|| self.overflow_anew(attempt, rules))
    }

    /// Is little memory left, in idle handles and in new ones?
    fn is_pressed(&self) -> bool {
        let idle = self.holdings.ledger.handles().idle_bytes();
        self.scarcity.is_pressed(self.holdings.held().device, idle.device)
    }

    /// Best fit in the free runs of the first tier that has one.
    fn best_fit(&mut self, attempt: &Attempt, tiers: &[Tier], filter: &LateFilter) -> Option<Decision> {
        let (facts, class) = (self.facts(), attempt.request.class?);
        let address = tiers.iter().find_map(|tier| best_fit(&facts, attempt, class, *tier, filter))?;
        Some(self.split(attempt, address))
    }

    /// Best fit in the free runs of any class, for a request that has one.
    fn best_fit_any_class(&mut self, attempt: &Attempt) -> Option<Decision> {
        attempt.request.class?;
        let facts = self.facts();
        let address =
            Class::ALL.iter().find_map(|class| best_fit(&facts, attempt, *class, Tier::Device, &ALL))?;
        Some(self.split(attempt, address))
    }

    /// Best fit after a flush of the free cache: first of the blocks of the request's class, so
    /// that other classes keep their hits, then of all. The later steps use idle handles, and the
    /// blocks in the cache keep handles from being idle.
    fn best_fit_flushed(
        &mut self,
        attempt: &Attempt,
        tiers: &[Tier],
        filter: &LateFilter,
    ) -> Option<Decision> {
        let own_class = attempt.request.class.map(FlushScope::Packed);
        own_class
            .into_iter()
            .chain([FlushScope::All])
            .find_map(|scope| self.flush(scope).then(|| self.best_fit(attempt, tiers, filter)).flatten())
    }

    /// Cuts the request's block from a free run.
    fn split(&mut self, attempt: &Attempt, address: u64) -> Decision {
        self.counters.splits += 1;
        Decision::Grant(self.grant(address, &attempt.request))
    }

    /// A range of the oldest existing extent that becomes free when idle handles are activated
    /// there: no driver call.
    fn reuse(&mut self, attempt: &Attempt, tiers: &[Tier]) -> Option<Decision> {
        let address = oldest_idle(&self.facts(), attempt, tiers)?;
        Some(self.claim(attempt, address))
    }

    /// The same on several tiers, unless a stitch would have a good part more of it on the device,
    /// where `idle` bytes are idle.
    fn reuse_overflown(&mut self, attempt: &Attempt, tiers: &[Tier], idle: u64) -> Option<Decision> {
        let address = oldest_idle(&self.facts(), attempt, tiers)?;
        let bytes = attempt.request.bytes;
        let on_device = self.holdings.ledger.bytes_on(Tier::Device, address, bytes);
        (on_device + bytes / DEVICE_PART >= idle.min(bytes)).then(|| self.claim(attempt, address))
    }

    fn claim(&mut self, attempt: &Attempt, address: u64) -> Decision {
        self.holdings.ledger.claim(address..address + attempt.request.bytes);
        self.counters.reuses += 1;
        Decision::Grant(self.grant(address, &attempt.request))
    }

    /// A new extent from idle handles of `tiers`, and new ones for the missing bytes.
    fn stitch(
        &mut self,
        attempt: &Attempt,
        rules: &Rules,
        tiers: &[Tier],
        new: NewHandles,
    ) -> Option<Decision> {
        let recipe = recipe(&self.facts(), attempt, rules, tiers, new)?;
        Some(Decision::Build(self.draft(&recipe, attempt.request.class, rules)))
    }

    /// New device memory, if there is any; the first call queries how much.
    fn create(&mut self, attempt: &Attempt, rules: &Rules) -> Option<Decision> {
        if attempt.room.is_none() {
            return Some(Decision::FindOut(Question::Room));
        }
        let left = allowance(&self.facts(), attempt, rules, Tier::Device);
        self.scarcity.ceiling = Some(self.holdings.held().device + left);
        let made = self.stitch(attempt, rules, &[Tier::Device], NewHandles::AsNeeded);
        self.scarcity.record_answer(attempt.request.bytes, made.is_some(), Instant::now);
        made
    }

    /// Have recent requests of this size or less found the device full? Then existing memory on
    /// other tiers is tried before free device memory is queried again.
    fn seems_full(&mut self, attempt: &Attempt) -> bool {
        attempt.room.is_none()
            && !attempt.is_relieved
            && self.scarcity.spares(attempt.request.bytes, Instant::now)
    }

    /// A block that has an extent to itself takes a handle that is far too large only where nothing
    /// else is left.
    fn oversized(&mut self, attempt: &mut Attempt, rules: &Rules) -> Option<Decision> {
        if attempt.request.class.is_some() {
            return None;
        }
        attempt.may_oversize = true;
        self.stitch(attempt, rules, &[Tier::Device], NewHandles::None)
    }

    /// The device is full: the request is met from the existing memory of it and of the overflow
    /// tiers together. An existing extent first, then free handles if the device has a good part,
    /// then a free run elsewhere.
    fn overflow(&mut self, attempt: &Attempt, rules: &Rules) -> Option<Decision> {
        let all = attempt.tiers(rules)?;
        let idle = self.holdings.ledger.handles().idle_bytes().device;
        let worthwhile = idle >= attempt.request.bytes / DEVICE_PART;
        self.reuse_overflown(attempt, &all, idle)
            .or_else(|| worthwhile.then(|| self.stitch(attempt, rules, &all, NewHandles::None)).flatten())
            .or_else(|| self.best_fit(attempt, &rules.settings.overflow, &ALL))
    }

    /// New memory on the overflow tiers for the bytes that idle and new memory of the device does
    /// not cover.
    fn overflow_anew(&mut self, attempt: &Attempt, rules: &Rules) -> Option<Decision> {
        let all = attempt.tiers(rules)?;
        let figure = attempt.room.map_or(HostFigure::Current, |room| room.host_figure);
        if figure == HostFigure::Unasked && all.contains(&Tier::Host) {
            return Some(Decision::FindOut(Question::Host(HostFigure::Recent)));
        }
        let recipe = recipe(&self.facts(), attempt, rules, &all, NewHandles::AsNeeded)?;
        // An older figure may promise memory that other processes have taken since.
        if figure == HostFigure::Recent && recipe.create.iter().any(|(tier, _)| *tier == Tier::Host) {
            return Some(Decision::FindOut(Question::Host(HostFigure::Current)));
        }
        Some(Decision::Build(self.draft(&recipe, attempt.request.class, rules)))
    }

    /// Queries, once, the progress of some other streams: memory that they freed may be ready.
    fn query_some(&mut self, attempt: &mut Attempt) -> Option<Decision> {
        let queried = std::mem::replace(&mut attempt.queried_some, true);
        (!queried).then(|| self.query(attempt, QUERIES)).flatten()
    }

    /// Queries, once, the progress of all other streams: the next steps cost more.
    fn query_all(&mut self, attempt: &mut Attempt) -> Option<Decision> {
        let queried = std::mem::replace(&mut attempt.queried_all, true);
        (!queried).then(|| self.query(attempt, usize::MAX)).flatten()
    }

    fn query(&mut self, attempt: &Attempt, most: usize) -> Option<Decision> {
        let queries = self.timeline.queries(Some(attempt.request.order), most);
        (!queries.is_empty()).then_some(Decision::FindOut(Question::Progress(queries)))
    }

    /// Only memory is left that streams have freed and may still be using. The host waits for it
    /// for a limited time, since the alternative is a refusal.
    fn wait(&self, attempt: &Attempt) -> Option<Decision> {
        let mut pending = Pending::default();
        self.holdings.ledger.runs().all().for_each(|(_, run)| pending.join(&run.segments.pending()));
        let fences = if attempt.waited { Vec::new() } else { self.timeline.awaited(&pending) };
        (!fences.is_empty()).then_some(Decision::FindOut(Question::Wait(fences)))
    }

    /// No memory is left, unless another thread is about to release some.
    fn refuse(&mut self, attempt: &Attempt, rules: &Rules) -> Decision {
        if !self.under_way.is_none() {
            return Decision::FindOut(Question::Busy(self.under_way.generation()));
        }
        // Another device may give back the part of the host limit that its plan has.
        let room = attempt.room.filter(|_| !attempt.full.contains(&Tier::Host));
        if let Some(seen) = room.and_then(|room| room.awaited()) {
            return Decision::FindOut(Question::HostPlan(seen));
        }
        self.counters.out_of_memory += 1;
        self.show();
        Decision::Full(Box::new(self.shortage(Some(attempt), rules)))
    }

    /// The refusal of a request that all tiers together could not meet.
    pub(crate) fn beyond(&mut self, asked: usize, rules: &Rules) -> Shortage {
        self.counters.out_of_memory += 1;
        self.show();
        Shortage { asked: asked as u64, overflow: OverflowVerdict::Beyond, ..self.shortage(None, rules) }
    }

    fn shortage(&self, attempt: Option<&Attempt>, rules: &Rules) -> Shortage {
        let (facts, ledger) = (self.facts(), &self.holdings.ledger);
        let together = self.together();
        let left = |tier| attempt.map_or(0, |attempt| allowance(&facts, attempt, rules, tier));
        Shortage {
            asked: attempt.map_or(0, |attempt| attempt.request.asked as u64),
            live: together.live,
            reserved: together.reserved,
            idle: ledger.handles().idle_bytes().plus(self.pool.idle_bytes()),
            largest_free_run: ledger.runs().largest(),
            device_left: left(Tier::Device),
            device_limit: self.limits.device,
            host_left: left(Tier::Host),
            overflow: match attempt.and_then(|attempt| attempt.oom_answer) {
                _ if rules.settings.overflow.is_empty() => OverflowVerdict::Off,
                Some(OomAnswer::Fail) => OverflowVerdict::Unfit,
                Some(OomAnswer::FailOnce) => OverflowVerdict::Later,
                _ => OverflowVerdict::Allowed,
            },
        }
    }
}
