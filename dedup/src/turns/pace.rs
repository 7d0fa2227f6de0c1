//! The moment at which a member gives way: when its turn is over, or when it is idle before that.

use std::time::Duration;

/// After that time without a launch, and without work on the GPU, a member is idle. Servers launch
/// each millisecond while they answer a request.
pub const QUIET: Duration = Duration::from_millis(20);

/// What a member does about an order to give way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivingPace {
    /// It gives way now.
    Now,
    /// It looks again after that time.
    Later(Duration),
}

/// `left`: the rest of the member's turn. `idle`: since its last launch. `works`: does the GPU work
/// for it? It is asked for a member only that has not launched for [`QUIET`].
pub fn of(left: Duration, idle: Duration, works: impl FnOnce() -> bool) -> GivingPace {
    if left.is_zero() {
        return GivingPace::Now;
    }
    match QUIET.checked_sub(idle) {
        Some(rest) if !rest.is_zero() => GivingPace::Later(rest.min(left)),
        _ if works() => GivingPace::Later(QUIET.min(left)),
        _ => GivingPace::Now,
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (thrashing): a member loses its turn between two launches. Hazard (latency): a
    //! member that launches all the time never gives way.
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_turn_ends_in_time_and_not_in_the_midst_of_work(
            left in 0..200_000_u64,
            launches in proptest::collection::vec((0..40_000_u64, any::<bool>()), 0..60),
        ) {
            let end = Duration::from_micros(left);
            let (mut now, mut launched, mut looks) = (Duration::ZERO, Duration::ZERO, 0);
            let mut launches = launches.into_iter().map(|(gap, works)| (Duration::from_micros(gap), works));
            let mut next = launches.next();
            loop {
                while let Some((gap, _)) = next && launched + gap <= now {
                    launched += gap;
                    next = launches.next();
                }
                let works = next.is_some_and(|(_, works)| works);
                let idle = now - launched;
                match of(end.saturating_sub(now), idle, || works) {
                    GivingPace::Now => {
                        prop_assert!(now >= end || idle >= QUIET && !works);
                        prop_assert!(now <= end);
                        break;
                    }
                    GivingPace::Later(time) => {
                        prop_assert!(!time.is_zero() && time <= QUIET);
                        now += time;
                    }
                }
                looks += 1;
                prop_assert!(looks < 5000);
            }
        }
    }
}
