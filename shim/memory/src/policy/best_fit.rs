//! Best fit: where a block goes in the free runs.

use std::ops::Range;

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
    let run = shortest_usable(facts, attempt, class, tier, ranks)?;
    let packed = class < Class::Large;
    Some(if packed { outermost(facts, &run, attempt.request.bytes) } else { run.start })
}

/// The usable stretch of the best fitting run that has one.
fn shortest_usable(
    facts: &Facts<'_>,
    attempt: &Attempt,
    class: Class,
    tier: Tier,
    ranks: &Ranks,
) -> Option<Range<u64>> {
    let bytes = attempt.request.bytes;
    let fitting = facts.ledger.runs().fitting(class, tier, bytes, ranks).take(CANDIDATES);
    let usable = |pending: &Pending| facts.is_usable(attempt, pending);
    fitting
        .filter_map(|(start, run)| Some((start, run.segments.usable(bytes, usable)?)))
        .next()
        .map(|(start, stretch)| start + stretch.start..start + stretch.end)
}

/// Where in a run a small block leaves an end of the handle free when it goes: ends can be joined, see `joint`.
fn outermost(facts: &Facts<'_>, run: &Range<u64>, bytes: u64) -> u64 {
    let at_end = |extent: Range<u64>| extent.start < run.start && extent.end == run.end;
    if facts.ledger.extents().range(run.start).is_some_and(at_end) { run.end - bytes } else { run.start }
}
