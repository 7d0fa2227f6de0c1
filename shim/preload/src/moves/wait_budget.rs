//! How long a call of the program may wait for the GPU to become idle, so that memory can move.
//!
//! Such a wait is for the library's sake: the bare call would return at once. So each has a limit,
//! and all of them together have a share of the program's time until they are known to pay
//! ([`WaitWorth`]). A wait that brought no move, or ended late, at least doubles the time until the
//! next one: work may run for long, or wait for the very thread that waits.
//!
//! A plain value: the caller reads the clock.

use std::time::{Duration, Instant};

/// The longest wait of a launch or an allocation.
pub(super) const WAIT: Duration = Duration::from_millis(20);

/// How long to look where there is no work to wait for: events that are recorded in idle streams
/// take some microseconds to be passed.
pub(super) const LOOK: Duration = Duration::from_micros(500);

/// The longest wait of a call that would fail otherwise.
pub(super) const RESCUE: Duration = Duration::from_secs(2);

/// The time until the next wait, after the first one without a move.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// Bytes that a fast link carries in a microsecond.
const LINK: u64 = 50_000;

/// Do the waits pay in this program?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum WaitWorth {
    /// Not measured.
    #[default]
    Unknown,
    /// The program is faster with them: their share is not limited.
    Pays,
    /// It is not, or that is being measured: there are none.
    Costs,
}

/// A wait that is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedWait {
    /// As it was granted.
    pub(super) limit: Duration,
    pub(super) took: Duration,
    pub(super) end: Instant,
    pub(super) has_moved: bool,
}

impl EndedWait {
    fn is_unsuccessful(&self) -> bool {
        !self.has_moved || self.took > self.limit
    }
}

/// When the next wait may be, and how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitBudget {
    most: Duration,
    /// The time in which one unit may be waited.
    share: u32,
    /// The end of the last wait.
    last: Option<Instant>,
    /// The time after it in which no wait begins.
    pause: Duration,
}

impl WaitBudget {
    /// Waits of at most `most`, and of one part in `share` of the time.
    pub(super) const fn new(most: Duration, share: u32) -> Self {
        Self { most, share, last: None, pause: Duration::ZERO }
    }

    /// The longest wait at present; `None`: there is none.
    pub(super) fn limit(&self, now: Instant, worth: WaitWorth) -> Option<Duration> {
        let is_over = |last| now.saturating_duration_since(last) >= self.pause;
        (worth != WaitWorth::Costs && self.last.is_none_or(is_over)).then_some(self.most)
    }

    /// A wait is over.
    pub(super) fn end(&mut self, wait: &EndedWait, worth: WaitWorth) {
        let share = if worth == WaitWorth::Pays { 0 } else { self.share - 1 };
        let least = wait.took.saturating_mul(share);
        let doubled = self.pause.saturating_mul(2).max(FIRST_PAUSE);
        self.pause = if wait.is_unsuccessful() { least.max(doubled) } else { least };
        self.last = Some(wait.end);
    }
}

/// The time in which so many bytes cross the link: an allocation that waits longer gains nothing by
/// its place.
pub(super) fn link_time(bytes: u64) -> Duration {
    Duration::from_micros(bytes / LINK)
}

#[cfg(test)]
mod tests {
    //! Hazard (latency): calls that return at once without the library wait for the GPU; or, all of
    //! them together, take a large part of the program's time.
    use proptest::prelude::*;

    use super::*;

    const SHARE: u32 = 20;

    /// What a program does: time passes, and a call asks for a wait, which takes a part of its
    /// limit (over 100: it ends late), and brings a move or not.
    #[derive(Debug, Clone)]
    struct Ask {
        pause: Duration,
        percent: u32,
        has_moved: bool,
    }

    fn ask() -> impl Strategy<Value = Ask> {
        let pause = prop_oneof![0..1000_u64, 0..2_000_000_u64].prop_map(Duration::from_micros);
        (pause, 0..300_u32, any::<bool>()).prop_map(|(pause, percent, has_moved)| Ask {
            pause,
            percent,
            has_moved,
        })
    }

    /// The waits that were granted: begin, and end as told to the budget.
    fn play(asks: &[Ask], worth: WaitWorth) -> Vec<(Instant, EndedWait)> {
        let (mut budget, mut now, mut waits) = (WaitBudget::new(WAIT, SHARE), Instant::now(), Vec::new());
        for ask in asks {
            now += ask.pause;
            let Some(limit) = budget.limit(now, worth) else { continue };
            let begin = now;
            let took = limit * ask.percent / 100;
            now += took;
            let wait = EndedWait { limit, took, end: now, has_moved: ask.has_moved };
            budget.end(&wait, worth);
            waits.push((begin, wait));
        }
        waits
    }

    proptest! {
        /// From the begin of any wait to that of any later one.
        #[test]
        fn until_waits_are_known_to_pay_they_have_their_share_of_the_time(
            asks in proptest::collection::vec(ask(), 0..200),
        ) {
            let waits = play(&asks, WaitWorth::Unknown);
            for (from, (begin, _)) in waits.iter().enumerate() {
                let mut waited = Duration::ZERO;
                for (later, wait) in &waits[from..] {
                    prop_assert!(waited * SHARE <= *later - *begin, "{waited:?} of {:?}", *later - *begin);
                    prop_assert!(wait.limit <= WAIT);
                    waited += wait.took;
                }
            }
        }

        /// Against a model that keeps the two last waits only.
        #[test]
        fn each_unsuccessful_wait_doubles_the_time_until_the_next(
            asks in proptest::collection::vec(ask(), 0..200),
            pays in any::<bool>(),
        ) {
            let waits = play(&asks, if pays { WaitWorth::Pays } else { WaitWorth::Unknown });
            let mut least = Duration::ZERO;
            for pair in waits.windows(2) {
                let [(_, one), (next, _)] = pair else { unreachable!() };
                let is_vain = !one.has_moved || one.took > one.limit;
                let share = if pays { Duration::ZERO } else { one.took * (SHARE - 1) };
                least = if is_vain { (least * 2).max(FIRST_PAUSE).max(share) } else { share };
                prop_assert!(*next - one.end >= least, "{:?} and not {least:?}", *next - one.end);
            }
        }

        /// The budget is no stricter than its rules: after each pause there is a wait.
        #[test]
        fn no_wait_is_refused_for_longer(asks in proptest::collection::vec(ask(), 0..60)) {
            let (mut budget, mut now, mut least) = (WaitBudget::new(WAIT, SHARE), Instant::now(), Duration::ZERO);
            for ask in asks {
                now += least;
                let limit = budget.limit(now, WaitWorth::Unknown);
                prop_assert_eq!(limit, Some(WAIT));
                let took = WAIT * ask.percent / 100;
                now += took;
                let wait = EndedWait { limit: WAIT, took, end: now, has_moved: ask.has_moved };
                budget.end(&wait, WaitWorth::Unknown);
                let doubled = if ask.has_moved && took <= WAIT { Duration::ZERO } else { least * 2 };
                least = doubled.max(took * (SHARE - 1)).max(FIRST_PAUSE);
            }
        }
    }

    #[test]
    fn where_waits_cost_more_than_they_bring_there_are_none() {
        assert_eq!(WaitBudget::new(WAIT, SHARE).limit(Instant::now(), WaitWorth::Costs), None);
    }

    #[test]
    fn bytes_cross_the_link_in_their_time() {
        assert_eq!(link_time(50_000_000), Duration::from_millis(1));
        assert_eq!((link_time(0), link_time(100)), (Duration::ZERO, Duration::ZERO));
    }
}
