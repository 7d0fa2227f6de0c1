//! Reuse: an existing extent in which a range becomes free when idle handles are activated there.
//! No driver call.

use wm_driver::Tier;

use crate::policy::attempt::Attempt;
use crate::policy::facts::Facts;
use crate::vocabulary::sizes::WINDOW_VISITS;

/// First address of the request's block in the oldest such extent. The oldest is preferred to the
/// best fit: when the request repeats, the extent that was stitched for it is still the oldest that
/// fits, even if others were stitched later, so each period uses the same extents as the one
/// before.
pub(crate) fn oldest_idle(facts: &Facts<'_>, attempt: &Attempt, tiers: &[Tier]) -> Option<u64> {
    // A block without a class has an extent of its own, which is made for it.
    let class = attempt.request.class?;
    let (request, extents) = (&attempt.request, facts.ledger.extents());
    let free = |_, key| {
        facts.ledger.handles().get(key).is_some_and(|memory| tiers.contains(&memory.tier))
            && facts.can_take(attempt, key)
    };
    // The search for a part ends early where extents are many; the search for a whole one looks at
    // each once.
    let part = extents.window(class, request.bytes, WINDOW_VISITS, free);
    let range = part.or_else(|| extents.whole(class, request.bytes, free))?;
    Some(range.start)
}
