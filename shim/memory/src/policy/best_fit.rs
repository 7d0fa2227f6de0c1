//! Best fit: where a block goes in the free runs.

use wm_driver::Tier;

use crate::books::ledger::run::LateFilter;
use crate::policy::attempt::Attempt;
use crate::policy::facts::Facts;
use crate::vocabulary::order::Pending;
use crate::vocabulary::sizes::{CANDIDATES, Class};

/// First address of the request's block in the best fitting run of a class and tier.
pub(crate) fn best_fit(
    facts: &Facts<'_>,
    attempt: &Attempt,
    class: Class,
    tier: Tier,
    filter: &LateFilter,
) -> Option<u64> {
    let bytes = attempt.request.bytes;
    let fitting = facts.ledger.runs().fitting(class, tier, bytes, filter).take(CANDIDATES);
    let usable = |pending: &Pending| facts.is_usable(attempt, pending);
    fitting.filter_map(|(start, run)| Some(start + run.segments.usable(bytes, usable)?.start)).next()
}
