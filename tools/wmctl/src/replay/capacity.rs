//! The smallest device memory that is enough: bisection over whole replays.
//!
//! A manager that has to make do with less may pack differently, so enough is not strictly
//! monotonic in theory; the answer is the smallest amount that was *seen* to be enough, with an
//! amount seen to fail at most one step below it.

/// Device memory comes in handles of this size.
pub(crate) const GRANULE: u64 = 2 << 20;

/// The search's resolution: a handle, or a thousandth of the needed memory.
pub(crate) fn step(peak: u64) -> u64 {
    (peak / 1000).max(GRANULE)
}

/// The smallest amount, a multiple of [`GRANULE`], for which `attempt` answers, with its answer.
/// `enough` is known to be enough, with the answer `known`; nothing below `peak` can be.
///
/// # Errors
/// The first error of an attempt, which ends the search.
pub(crate) fn smallest<T, E>(
    peak: u64,
    enough: u64,
    known: T,
    mut attempt: impl FnMut(u64) -> Result<Option<T>, E>,
) -> Result<(u64, T), E> {
    let mut best = (enough.next_multiple_of(GRANULE), known);
    let lowest = peak.next_multiple_of(GRANULE);
    let mut fails = lowest.saturating_sub(GRANULE);
    while best.0.saturating_sub(fails) > step(peak).max(GRANULE) {
        let middle = next(fails, best.0, lowest);
        match attempt(middle)? {
            Some(answer) => best = (middle, answer),
            None => fails = middle,
        }
    }
    Ok(best)
}

/// The lowest amount there can be is tried first: a good allocator passes there, and the search is
/// over.
fn next(fails: u64, enough: u64, lowest: u64) -> u64 {
    if fails < lowest && lowest < enough {
        return lowest;
    }
    let middle = fails + (enough - fails) / 2;
    middle / GRANULE * GRANULE
}

#[cfg(test)]
mod tests {
    //! Hazard: a search that stops early reports a need that is not there, one that never stops
    //! reports nothing.
    use super::*;

    fn search(peak: u64, enough: u64, need: u64) -> (u64, u32) {
        let mut attempts = 0;
        let attempt = |bytes: u64| {
            attempts += 1;
            assert_eq!(bytes % GRANULE, 0);
            Ok::<_, ()>((bytes >= need).then_some(()))
        };
        let (found, ()) = smallest(peak, enough, (), attempt).expect("no error");
        (found, attempts)
    }

    #[test]
    fn finds_the_need_to_a_step() {
        const GIB: u64 = 1 << 30;
        for need in [10 * GIB + 1, 11 * GIB, 19 * GIB, 40 * GIB] {
            let (found, attempts) = search(10 * GIB, 40 * GIB, need);
            assert!(found >= need && found - need <= step(10 * GIB), "{need}: {found}");
            assert!(attempts < 20);
        }
    }

    #[test]
    fn a_perfect_allocator_is_known_at_once() {
        assert_eq!(search(100 * GRANULE, 200 * GRANULE, 100 * GRANULE), (100 * GRANULE, 1));
        assert_eq!(search(5, GRANULE, 5), (GRANULE, 0));
    }

    #[test]
    fn an_error_ends_the_search() {
        assert_eq!(smallest(GRANULE, 64 * GRANULE, (), |_| Err("broken")), Err("broken"));
    }
}
