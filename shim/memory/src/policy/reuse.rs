//! Reuse: an extent that exists, and a stretch of which becomes free by claiming idle handles. No driver call.

use wm_driver::Tier;

use crate::policy::attempt::Attempt;
use crate::policy::facts::Facts;
use crate::vocabulary::sizes::WINDOW_VISITS;

/// First address of the request's block in the oldest such extent. Not in the one that fits best: an extent that was stitched
/// for a request is the oldest that serves it when it comes again, whatever else was stitched since, so that a period goes
/// as the one before.
pub(crate) fn oldest_idle(facts: &Facts<'_>, attempt: &Attempt, tiers: &[Tier]) -> Option<u64> {
    // A block without a class has an extent of its own, which is made for it.
    let class = attempt.request.class?;
    let (request, extents) = (&attempt.request, facts.ledger.extents());
    let free = |_, key| {
        facts.ledger.handles().get(key).is_some_and(|memory| tiers.contains(&memory.tier))
            && facts.can_take(attempt, key)
    };
    // The search for a part ends early where extents are many; the search for a whole one looks at each once.
    let part = extents.window(class, request.bytes, WINDOW_VISITS, free);
    let stretch = part.or_else(|| extents.whole(class, request.bytes, free))?;
    Some(stretch.start)
}
