//! Best fit: where a block goes in the free runs.

use wm_driver::Tier;

use crate::books::ledger::Run;
use crate::books::ledger::run::LateFilter;
use crate::policy::attempt::Attempt;
use crate::policy::facts::Facts;
use crate::vocabulary::order::Pending;
use crate::vocabulary::sizes::{CANDIDATES, Class, UNIT, round_up};

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
    let place = |(start, run): (u64, &Run)| match attempt.request.alignment {
        UNIT => {
            let begin = start + run.segments.usable(bytes, usable)?.start;
            // A guarded block, which need not begin on a unit, may have left the memory behind it.
            let is_on_unit = begin.is_multiple_of(UNIT);
            if is_on_unit { Some(begin) } else { aligned(start, run, bytes, UNIT, usable) }
        }
        alignment => aligned(start, run, bytes, alignment, usable),
    };
    fitting.filter_map(place).next()
}

/// The first place in a run for a block whose address is a multiple of `alignment`.
fn aligned(
    start: u64,
    run: &Run,
    bytes: u64,
    alignment: u64,
    usable: impl Fn(&Pending) -> bool,
) -> Option<u64> {
    let mut begins = (round_up(start, alignment)?..).step_by(alignment as usize);
    let last = (start + run.bytes).checked_sub(bytes)?;
    begins.by_ref().take_while(|begin| *begin <= last).find(|begin| {
        let offset = begin - start;
        run.segments.is_usable(offset..offset + bytes, &usable)
    })
}
