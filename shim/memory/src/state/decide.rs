//! One decision about one request: the next thing to do, taken under the lock without a call of the driver.
//!
//! The order of preference is the list in [`State::decide`]. A request goes round until it is met: each round either
//! meets it, or learns something that the attempt remembers (events that are done, room that is left, a tier that
//! proved full, a stream that cannot be recorded in), so rounds come to an end.

use std::sync::Arc;

use wm_driver::{Bears, Tier};

use crate::books::free_cache::Part;
use crate::books::ledger::Key;
use crate::books::ledger::runs::{ALL, EARLY, LATE, Ranks};
use crate::ordering::fence::{Doubt, Fence};
use crate::policy::attempt::Attempt;
use crate::policy::recipe::Making;
use crate::state::draft::Draft;
use crate::state::joint::Joint;
use crate::state::{Grant, State};
use crate::vocabulary::error::{Overflow, Shortage};
use crate::vocabulary::order::{Order, Pending};
use crate::vocabulary::settings::Rules;
use crate::vocabulary::sizes::{Class, DEVICE_PART, DOUBTS, WINDOW_VISITS};

/// What to do next.
#[derive(Debug)]
pub(crate) enum Decision {
    /// Nothing: the request has its memory.
    Met(u64),
    /// Make the granted memory usable, with events if there are needs.
    Grant(Grant),
    /// Make an extent.
    Build(Draft),
    /// Make a joint.
    Join(Joint),
    /// Ask how far streams have come, then decide again.
    Inquire(Vec<Doubt>),
    /// Wait until one of these is done, for a while, then decide again.
    Wait(Vec<Arc<Fence>>),
    /// Find out what room is left, then decide again.
    Ask,
    /// Find out what the caller bears, then decide again.
    WhoAsks,
    /// Wait for what other threads have under way, then decide again.
    Busy(u64),
    /// Every allowed tier is full.
    Full(Box<Shortage>),
}

impl State {
    /// The next thing to do for a request.
    pub(crate) fn decide(&mut self, attempt: &mut Attempt, rules: &Rules) -> Decision {
        self.forget_past();
        self.timeline.meet(attempt.request.order);
        if let Some(doubts) = self.ask_first(attempt) {
            return doubts;
        }
        if self.is_pressed() {
            self.squeeze(attempt);
        }
        self.on_device(attempt, rules)
            .or_else(|| self.ask_all(attempt))
            .or_else(|| self.ordered(attempt, rules))
            .or_else(|| self.elsewhere(attempt, rules))
            .or_else(|| self.wait(attempt))
            .unwrap_or_else(|| self.refuse(attempt, rules))
    }

    /// Device memory that is ready, or new. Joints cost calls at every miss: they are for those who would be refused
    /// otherwise.
    fn on_device(&mut self, attempt: &mut Attempt, rules: &Rules) -> Option<Decision> {
        let (device, pressed) = (&[Tier::Device][..], self.is_pressed());
        let first = if pressed { &ALL } else { &EARLY };
        let alone = rules.settings.overflow.is_empty();
        self.cut(attempt, device, first)
            .or_else(|| self.ask_some(attempt))
            .or_else(|| self.cut_cached(attempt, device, first))
            .or_else(|| (alone && pressed).then(|| self.join(attempt)).flatten())
            .or_else(|| self.reuse(attempt, device))
            .or_else(|| self.cut(attempt, device, &LATE))
            .or_else(|| self.stitch(attempt, rules, device, Making::Nothing))
            .or_else(|| (!self.seems_full(attempt)).then(|| self.create(attempt, rules)).flatten())
            .or_else(|| (alone && !pressed).then(|| self.join(attempt)).flatten())
            .or_else(|| self.trespass(attempt))
    }

    /// The device is full. Memory that another stream has freed and may still be using: the requesting stream waits for it, on
    /// the GPU, if the program's pool allows that, and on nothing that came after the free.
    fn ordered(&mut self, attempt: &mut Attempt, rules: &Rules) -> Option<Decision> {
        let order = attempt.request.order;
        if attempt.cannot_order || self.forbids_dependencies || !self.timeline.has_exact(order) {
            return None;
        }
        if attempt.room.is_none() {
            return Some(Decision::Ask);
        }
        let device = &[Tier::Device][..];
        attempt.may_order = true;
        let found = self
            .cut(attempt, device, &ALL)
            .or_else(|| self.reuse(attempt, device))
            .or_else(|| self.stitch(attempt, rules, device, Making::Nothing))
            .or_else(|| self.create(attempt, rules))
            .or_else(|| self.trespass(attempt));
        attempt.may_order = false;
        found
    }

    /// Memory that is not, or not all, on the device, where that is allowed.
    fn elsewhere(&mut self, attempt: &mut Attempt, rules: &Rules) -> Option<Decision> {
        let alone = rules.settings.overflow.is_empty();
        if let Some(decision) = self.squander(attempt, rules) {
            return Some(decision);
        }
        if attempt.bears.is_none() {
            return Some(Decision::WhoAsks);
        }
        self.overflow(attempt, rules)
            .or_else(|| self.create(attempt, rules))
            .or_else(|| self.overflow_anew(attempt, rules))
            .or_else(|| (!alone).then(|| self.join(attempt)).flatten())
    }

    /// Out of what the front cache holds: first of the request's own class, for the others keep their hits then. What follows
    /// this draws on idle handles, and finds nothing cached.
    fn cut_cached(&mut self, attempt: &Attempt, tiers: &[Tier], ranks: &Ranks) -> Option<Decision> {
        let parts = [Part::Packed(attempt.request.class), Part::All];
        parts.into_iter().find_map(|part| self.flush(part).then(|| self.cut(attempt, tiers, ranks)).flatten())
    }

    /// New device memory, if there is room; what room there is must be asked first.
    fn create(&mut self, attempt: &Attempt, rules: &Rules) -> Option<Decision> {
        if attempt.room.is_none() {
            return Some(Decision::Ask);
        }
        let left = self.allowance(attempt, rules, Tier::Device);
        self.scarcity.ceiling = Some(self.reserved.now.device + left);
        let made = self.stitch(attempt, rules, &[Tier::Device], Making::WhatIsMissing);
        self.scarcity.note(attempt.request.bytes, made.is_some());
        made
    }

    /// Did requests no larger than this find the device full just now? Then what exists on other tiers is tried before
    /// the driver is asked again.
    fn seems_full(&mut self, attempt: &Attempt) -> bool {
        attempt.room.is_none() && self.scarcity.spares(attempt.request.bytes)
    }

    /// The oldest extent that exists and a stretch of which becomes free by claiming idle handles: no driver call. Not the one
    /// that fits best: an extent that was stitched for a request is the oldest that serves it when it comes again, whatever else
    /// was stitched since, so that a period goes as the one before. The first search ends early where extents are many.
    fn reuse(&mut self, attempt: &Attempt, tiers: &[Tier]) -> Option<Decision> {
        if attempt.request.class == Class::Guarded {
            return None;
        }
        let (request, extents) = (&attempt.request, &self.ledger.extents);
        let free = |_, key| {
            self.ledger.memories.get(key).is_some_and(|memory| tiers.contains(&memory.tier))
                && self.can_take(attempt, key)
        };
        let window = extents.window(request.class, request.bytes, WINDOW_VISITS, free);
        let stretch = window.or_else(|| extents.whole(request.class, request.bytes, free))?;
        let address = stretch.start;
        self.ledger.claim(address..address + request.bytes);
        self.counters.reuses += 1;
        Some(Decision::Grant(self.grant(address, request)))
    }

    pub(crate) fn can_take(&self, attempt: &Attempt, key: Key) -> bool {
        self.ledger.memories.is_idle(key)
            && self.ledger.is_usable(key, |pending| self.is_usable(attempt, pending))
    }

    /// Before anything else for a request that names no stream, so that what it gets does not depend on who asked last.
    fn ask_first(&mut self, attempt: &mut Attempt) -> Option<Decision> {
        (attempt.request.order == Order::Device).then(|| self.ask_some(attempt)).flatten()
    }

    /// Asks, once, how far some other streams have come: what they freed may be ready.
    fn ask_some(&mut self, attempt: &mut Attempt) -> Option<Decision> {
        let asked = std::mem::replace(&mut attempt.asked_some, true);
        (!asked).then(|| self.ask(attempt, DOUBTS)).flatten()
    }

    /// The same, all of them: the alternative is worse.
    fn ask_all(&mut self, attempt: &mut Attempt) -> Option<Decision> {
        let asked = std::mem::replace(&mut attempt.asked_all, true);
        (!asked).then(|| self.ask(attempt, usize::MAX)).flatten()
    }

    fn ask(&mut self, attempt: &Attempt, most: usize) -> Option<Decision> {
        let doubts = self.timeline.doubts(Some(attempt.request.order), most);
        (!doubts.is_empty()).then_some(Decision::Inquire(doubts))
    }

    /// Nothing is left but what streams have freed and may still be using. The host waits for it, for a while, since the
    /// alternative is to refuse.
    fn wait(&self, attempt: &Attempt) -> Option<Decision> {
        let mut pending = Pending::default();
        self.ledger.runs.all().for_each(|(_, run)| pending.join(&run.segments.pending()));
        let fences = if attempt.waited { Vec::new() } else { self.timeline.awaited(&pending) };
        (!fences.is_empty()).then_some(Decision::Wait(fences))
    }

    /// Guarded blocks share no handle. Only where nothing else is left does one take a handle that is far too large.
    fn squander(&mut self, attempt: &mut Attempt, rules: &Rules) -> Option<Decision> {
        if attempt.request.class != Class::Guarded {
            return None;
        }
        attempt.wasteful = true;
        self.stitch(attempt, rules, &[Tier::Device], Making::Nothing)
    }

    /// A new extent from idle handles of `tiers`, and new ones for what is missing.
    fn stitch(
        &mut self,
        attempt: &Attempt,
        rules: &Rules,
        tiers: &[Tier],
        making: Making,
    ) -> Option<Decision> {
        let recipe = self.recipe(attempt, rules, tiers, making)?;
        Some(Decision::Build(self.draft(&recipe, attempt.request.class, rules)))
    }

    /// The device is full: what exists of it and of the overflow tiers together. An existing extent first, then free
    /// handles if the device has a good part, then a free run elsewhere.
    fn overflow(&mut self, attempt: &Attempt, rules: &Rules) -> Option<Decision> {
        let all = attempt.tiers(rules)?;
        let idle = self.ledger.memories.idle_bytes().device;
        let worthwhile = idle >= attempt.request.bytes / DEVICE_PART;
        self.reuse(attempt, &all)
            .or_else(|| worthwhile.then(|| self.stitch(attempt, rules, &all, Making::Nothing)).flatten())
            .or_else(|| self.cut(attempt, &rules.settings.overflow, &ALL))
    }

    /// The last resort: new memory on the overflow tiers, and what little the device has.
    fn overflow_anew(&mut self, attempt: &Attempt, rules: &Rules) -> Option<Decision> {
        let all = attempt.tiers(rules)?;
        self.stitch(attempt, rules, &all, Making::WhatIsMissing)
    }

    /// Nothing is left, unless another thread is about to give something back.
    fn refuse(&mut self, attempt: &Attempt, rules: &Rules) -> Decision {
        if self.in_flight > 0 {
            return Decision::Busy(self.generation);
        }
        self.counters.out_of_memory += 1;
        Decision::Full(Box::new(self.shortage(attempt, rules)))
    }

    fn shortage(&self, attempt: &Attempt, rules: &Rules) -> Shortage {
        Shortage {
            asked: attempt.request.asked as u64,
            live: self.live.now,
            reserved: self.reserved.now,
            idle: self.ledger.memories.idle_bytes(),
            largest_free_run: self.ledger.runs.largest(),
            device_left: self.allowance(attempt, rules, Tier::Device),
            device_limit: rules.settings.device_limit,
            host_left: self.allowance(attempt, rules, Tier::Host),
            overflow: match attempt.bears {
                _ if rules.settings.overflow.is_empty() => Overflow::Off,
                Some(Bears::Never) => Overflow::Unfit,
                Some(Bears::NotYet) => Overflow::Later,
                _ => Overflow::Allowed,
            },
        }
    }
}
