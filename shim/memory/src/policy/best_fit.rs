//! Best fit: where a block goes in the free runs.

use wm_driver::Tier;

use crate::books::ledger::run::Ranks;
use crate::policy::attempt::Attempt;
use crate::policy::facts::Facts;
use crate::vocabulary::order::Pending;
use crate::vocabulary::sizes::{CANDIDATES, Class};

/// First address of the request's block in the best fitting run of a class and tier. A guarded block shares no run.
pub(crate) fn best_fit(
    facts: &Facts<'_>,
    attempt: &Attempt,
    class: Class,
    tier: Tier,
    ranks: &Ranks,
) -> Option<u64> {
    if attempt.request.class == Class::Guarded {
        return None;
    }
    let bytes = attempt.request.bytes;
    let fitting = facts.ledger.runs().fitting(class, tier, bytes, ranks).take(CANDIDATES);
    let usable = |pending: &Pending| facts.is_usable(attempt, pending);
    fitting.filter_map(|(start, run)| Some(start + run.segments.usable(bytes, usable)?.start)).next()
}
