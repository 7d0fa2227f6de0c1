//! For which share of the time memory may move, as the user has set it: after a move there is none for so long that the share holds.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The greatest share; decided at load.
static SHARE: OnceLock<f64> = OnceLock::new();

/// Until when nothing moves.
static PAUSED_UNTIL: Mutex<Option<Instant>> = Mutex::new(None);

pub(super) fn set(share: f64) {
    let _ = SHARE.set(share);
}

/// Makes moves, and notes how long they took. `None`: not now.
pub(super) fn within_share<R>(moves: impl FnOnce() -> R) -> Option<R> {
    let Some(share) = SHARE.get() else { return Some(moves()) };
    let begin = Instant::now();
    if paused_until().is_some_and(|until| begin < until) {
        return None;
    }
    let done = moves();
    let end = Instant::now();
    *paused_until() = Some(end + pause(end - begin, *share));
    Some(done)
}

fn paused_until() -> std::sync::MutexGuard<'static, Option<Instant>> {
    PAUSED_UNTIL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a share of the time allows nothing after what took so long.
fn pause(taken: Duration, share: f64) -> Duration {
    taken.mul_f64((1.0 / share - 1.0).clamp(0.0, 1e6))
}

#[cfg(test)]
mod tests {
    //! Hazard: moves take more of the time than the user allows.
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn moves_take_no_more_than_their_share(
            taken in prop::collection::vec(1_u64..2_000_000, 1..40),
            share in 0.001..1.0_f64,
        ) {
            let moved: Duration = taken.iter().map(|micros| Duration::from_micros(*micros)).sum();
            let all: Duration = taken
                .iter()
                .map(|micros| Duration::from_micros(*micros))
                .map(|taken| taken + pause(taken, share))
                .sum();
            prop_assert!(moved.as_secs_f64() <= 1.0001 * share * all.as_secs_f64());
            prop_assert!(1.0001 * moved.as_secs_f64() >= share * all.as_secs_f64(), "no longer than need be");
        }
    }

    /// One test, since the share is the process's.
    #[test]
    fn after_a_move_there_is_none_for_a_while() {
        assert_eq!(within_share(|| 1), Some(1));
        assert_eq!(within_share(|| 2), Some(2), "nothing bounds them");
        set(0.001);
        assert_eq!(within_share(|| std::thread::sleep(Duration::from_millis(20))), Some(()));
        assert_eq!(within_share(|| 3), None);
    }
}
