//! Recipes of new extents: which idle handles to take, and which handles to make for the missing
//! bytes.
//!
//! A large request takes of the device before other tiers, and on each idle handles before new
//! ones, large ones before small ones. A small one takes an idle handle of any tier before a new
//! one. New ones stay within the limits, the headroom and the memory that the driver has left.

use wm_driver::Tier;

use crate::books::ledger::HandleKey;
use crate::policy::attempt::{Attempt, Room};
use crate::policy::facts::Facts;
use crate::vocabulary::settings::Rules;
use crate::vocabulary::sizes::{
    Class, MEDIUM_BELOW, MEDIUM_EXTENT, SMALL_MEMORY, handle_bytes, handles_for, least_handle,
    movable_handles, round_down, round_up, small_room_in_limit,
};

/// May a new extent have new handles?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewHandles {
    None,
    AsNeeded,
}

/// Idle handles to take, and new ones to make.
#[derive(Debug, Default)]
pub(crate) struct Recipe {
    pub(crate) take: Vec<HandleKey>,
    pub(crate) create: Vec<(Tier, u64)>,
}

/// The parts of an extent for the request, on `tiers`; `None` if there is not enough memory.
pub(crate) fn recipe(
    facts: &Facts<'_>,
    attempt: &Attempt,
    rules: &Rules,
    tiers: &[Tier],
    new: NewHandles,
) -> Option<Recipe> {
    match attempt.request.class {
        Some(Class::Tiny | Class::Small) => small_recipe(facts, attempt, rules, tiers, new),
        Some(Class::Large) | None => large_recipe(facts, attempt, rules, tiers, new),
    }
}

/// One handle: an idle one of the smallest size, a new one, or at last any idle one.
fn small_recipe(
    facts: &Facts<'_>,
    attempt: &Attempt,
    rules: &Rules,
    tiers: &[Tier],
    new: NewHandles,
) -> Option<Recipe> {
    let unit = rules.granularity;
    let take = |key| Recipe { take: vec![key], create: vec![] };
    if let Some(key) = smallest_idle(facts, attempt, tiers, unit) {
        return Some(take(key));
    }
    if new == NewHandles::None {
        return None;
    }
    let roomy = tiers.iter().find(|tier| allowance(facts, attempt, rules, **tier) >= unit);
    roomy
        .map(|tier| Recipe { take: vec![], create: vec![(*tier, unit)] })
        .or_else(|| smallest_idle(facts, attempt, tiers, u64::MAX).map(take))
}

fn smallest_idle(facts: &Facts<'_>, attempt: &Attempt, tiers: &[Tier], largest: u64) -> Option<HandleKey> {
    let on = |tier: &Tier| facts.ledger.handles().idle(*tier).take_while(|(_, bytes)| *bytes <= largest);
    tiers.iter().flat_map(on).map(|(key, _)| key).find(|key| facts.can_take(attempt, *key))
}

fn large_recipe(
    facts: &Facts<'_>,
    attempt: &Attempt,
    rules: &Rules,
    tiers: &[Tier],
    new: NewHandles,
) -> Option<Recipe> {
    let whole = round_up(attempt.request.bytes, rules.granularity)?;
    let (mut recipe, mut missing) = (Recipe::default(), whole);
    let largest = largest_last(attempt, whole, rules.granularity);
    for tier in tiers {
        missing = gather(facts, attempt, *tier, missing, largest, &mut recipe.take);
        if new == NewHandles::AsNeeded {
            missing =
                make(facts, attempt, rules, *tier, Missing { bytes: missing, whole }, &mut recipe.create);
        }
    }
    (missing == 0).then_some(recipe)
}

/// Adds idle handles of a tier to `take`, large ones first; returns the bytes that are still
/// missing. The last handle may be longer than the bytes that are missing then, up to `largest`.
fn gather(
    facts: &Facts<'_>,
    attempt: &Attempt,
    tier: Tier,
    missing: u64,
    largest: u64,
    take: &mut Vec<HandleKey>,
) -> u64 {
    let (mut left, first) = (missing, take.len());
    for (key, bytes) in facts.ledger.handles().idle(tier).rev() {
        if bytes <= left && facts.can_take(attempt, key) {
            take.push(key);
            left -= bytes;
        }
    }
    if left > 0 {
        let fresh = |(key, bytes): &(HandleKey, u64)| {
            (left + 1..=largest).contains(bytes)
                && !take[first..].contains(key)
                && facts.can_take(attempt, *key)
        };
        if let Some((key, _)) = facts.ledger.handles().idle(tier).find(fresh) {
            take.push(key);
            left = 0;
        }
    }
    left
}

/// The bytes that an extent of `whole` bytes still lacks.
#[derive(Debug, Clone, Copy)]
struct Missing {
    bytes: u64,
    whole: u64,
}

/// Adds handles to make on a tier, as far as it has room; returns the bytes that are still missing.
/// A medium request's extent is made larger, for the next ones, where the device has the room.
fn make(
    facts: &Facts<'_>,
    attempt: &Attempt,
    rules: &Rules,
    tier: Tier,
    Missing { bytes, whole }: Missing,
    create: &mut Vec<(Tier, u64)>,
) -> u64 {
    if bytes == 0 {
        return 0;
    }
    let left = allowance(facts, attempt, rules, tier);
    let shared = bytes + MEDIUM_EXTENT.saturating_sub(whole);
    let is_medium = whole < MEDIUM_BELOW && attempt.request.class == Some(Class::Large);
    let is_shared = is_medium && tier == Tier::Device && left >= shared;
    let made = if is_shared { shared } else { bytes.min(left) };
    let chunk = rules.settings.chunked.then_some(rules.granularity);
    if (rules.settings.movable || facts.expects_moves) && chunk.is_none() {
        create.extend(movable_handles(made, whole, rules.granularity).map(|bytes| (tier, bytes)));
    } else {
        let device = allowance(facts, attempt, rules, Tier::Device);
        let each = chunk.unwrap_or_else(|| handle_bytes(whole, least_handle(device, rules.granularity)));
        create.extend(handles_for(made, each).map(|bytes| (tier, bytes)));
    }
    bytes.saturating_sub(made)
}

/// How much more of a tier may be made, in whole units.
pub(crate) fn allowance(facts: &Facts<'_>, attempt: &Attempt, rules: &Rules, tier: Tier) -> u64 {
    let Some(room) = attempt.room.filter(|_| !attempt.full.contains(&tier)) else { return 0 };
    let (limit, room) = match tier {
        Tier::Device => device_bounds(facts, attempt, rules, room),
        Tier::Peer(_) => (rules.settings.peer_limit, u64::MAX),
        Tier::Host => (room.host_limit, room.host),
    };
    let left = limit.min(room).saturating_sub(facts.held_on(tier));
    round_down(left.min(attempt.most_on(tier)), rules.granularity)
}

/// How far the device's memory may grow: by the user's limit, and by what the driver has left. A
/// kernel with a small operand on the host is slow however much of the rest is on the device. So
/// small memory may use a part of the headroom, and what could lie elsewhere leaves it a part of
/// the limit.
fn device_bounds(facts: &Facts<'_>, attempt: &Attempt, rules: &Rules, room: Room) -> (u64, u64) {
    let limit = facts.device_limit;
    if attempt.request.bytes < SMALL_MEMORY {
        return (limit, room.device_for_small);
    }
    let is_for_small = limit < u64::MAX && attempt.may_spill(rules);
    let small = if is_for_small { small_room_in_limit(limit, rules.granularity) } else { 0 };
    (limit - small, room.device)
}

/// Largest handle that may end an extent of `whole` bytes. The bytes that the request does not use
/// become a free run for other requests. A block that has the extent to itself would waste them, so
/// the limit is the handle that would be made for the extent.
fn largest_last(attempt: &Attempt, whole: u64, granularity: u64) -> u64 {
    let shared = attempt.request.class.is_some() || attempt.may_oversize;
    if shared { u64::MAX } else { handle_bytes(whole, granularity) }
}
