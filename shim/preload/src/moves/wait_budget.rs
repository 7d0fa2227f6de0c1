//! How long a call of the program may wait for the GPU to become idle, so that memory can move.
//!
//! Such a wait is for the library's sake: the bare call would return at once. So each has a limit,
//! and all of them together have a share of the program's time until they are known to pay
//! ([`WaitWorth`]). A wait that brought no move, or ended late, at least doubles the time until the
//! next one: work may run for long, or wait for the very thread that waits. Where waits are
//! measured, or were measured to pay, only late ones do.
//!
//! The share is credit that time earns and waits spend. While a trial measures what waits bring,
//! they may spend what was earned before, since few waits far apart move too little to be seen in
//! the program's pace. So they may before the first trial, where [`AMPLE`] credit is left: a launch
//! that does not wait reads its memory from the host, and is so slow that no wait behind it ends in
//! time.
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

/// The most credit that a trial can spend.
const SAVED: Duration = Duration::from_secs(5);

/// Credit of several waits, with which each launch of a step can wait before anything is measured.
const AMPLE: Duration = Duration::from_millis(80);

/// A wait has ended late if it took its limit and one part in so many of that.
const LATE_PART: u32 = 8;

/// A wait of the program's own that is as long has found the GPU busy.
const BUSY: Duration = Duration::from_micros(100);

/// The time until the next wait, after the first one without a move.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// Bytes that a fast link carries in a microsecond.
const LINK: u64 = 50_000;

/// Memory of the host is made for this time in a launch, or after a wait of the host: handles of
/// 64 MiB take 10 to 35 ms each, and where fewer than some are made, nothing moves for the next
/// launch, either.
pub(super) const MAKING: Duration = Duration::from_millis(80);

/// Do the waits pay in this program?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum WaitWorth {
    /// Not measured.
    #[default]
    Unknown,
    /// It is being measured with waits.
    Trial,
    /// The program is faster with them: their share is not limited.
    Pays,
    /// It is not, or that is being measured: there are none.
    Costs,
}

impl WaitWorth {
    /// Is it measured what waits bring? Then the host is to be kept near the GPU: behind much work
    /// that it has submitted ahead no wait ends in time.
    pub(super) fn is_measured(self) -> bool {
        matches!(self, Self::Trial | Self::Pays)
    }
}

/// A wait that is over.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedWait {
    /// As the budget granted it. A call may have waited for less.
    pub(super) limit: Duration,
    pub(super) took: Duration,
    pub(super) end: Instant,
    pub(super) has_moved: bool,
}

impl EndedWait {
    fn is_late(&self) -> bool {
        self.took > self.limit + self.limit / LATE_PART
    }
}

/// When the next wait may be, and how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct WaitBudget {
    most: Duration,
    /// The time that earns one unit of waiting; 1: the share is not limited.
    share: u32,
    /// The end of the last wait.
    last: Option<Instant>,
    /// The time after it in which no wait begins.
    pause: Duration,
    /// Credit is earned from here on. Each wait puts it later by the time that earns as much.
    earns_from: Option<Instant>,
    /// Waits since the program waited itself.
    spent: Duration,
}

impl WaitBudget {
    /// Waits of at most `most`, and of one part in `share` of the time.
    pub(super) const fn new(most: Duration, share: u32) -> Self {
        Self { most, share, last: None, pause: Duration::ZERO, earns_from: None, spent: Duration::ZERO }
    }

    /// What a wait counts as: one of unknown worth as one of a trial, while there is ample credit.
    pub(super) fn counts_as(&mut self, now: Instant, worth: WaitWorth) -> WaitWorth {
        let is_trial = worth == WaitWorth::Unknown && self.credit(now) >= AMPLE;
        if is_trial { WaitWorth::Trial } else { worth }
    }

    /// The longest wait at present; `None`: there is none. Credit is earned from the first call on.
    pub(super) fn limit(&mut self, now: Instant, worth: WaitWorth) -> Option<Duration> {
        let may_spend = self.credit(now) >= self.most || worth == WaitWorth::Pays;
        let is_over = |last| now.saturating_duration_since(last) >= self.pause;
        (worth != WaitWorth::Costs && may_spend && self.last.is_none_or(is_over)).then_some(self.most)
    }

    /// The time that waits may take by now. The first wait need not be earned.
    pub(super) fn credit(&mut self, now: Instant) -> Duration {
        if self.share == 1 {
            return SAVED;
        }
        let first = now.checked_sub(self.most.saturating_mul(self.share)).unwrap_or(now);
        let from = *self.earns_from.get_or_insert(first);
        (now.saturating_duration_since(from) / self.share).min(SAVED)
    }

    /// The program has waited for the GPU itself. If that was busy, the waits of calls since the
    /// last time have only made this one shorter, and so has each wait that will be as long: they
    /// cost the program nothing.
    pub(super) fn earn(&mut self, waited: Duration) {
        let spent = std::mem::take(&mut self.spent);
        if waited >= BUSY {
            let earned = (waited + spent).saturating_mul(self.share);
            let from = self.earns_from.and_then(|from| from.checked_sub(earned));
            self.earns_from = from.or(self.earns_from);
        }
    }

    /// A wait is over.
    pub(super) fn end(&mut self, wait: &EndedWait, worth: WaitWorth) {
        let begin = wait.end.checked_sub(wait.took).unwrap_or(wait.end);
        let (share, saved) = match worth {
            WaitWorth::Pays => (0, None),
            WaitWorth::Trial => (0, Some(SAVED)),
            WaitWorth::Unknown | WaitWorth::Costs => (self.share - 1, Some(self.most)),
        };
        if let Some(saved) = saved {
            self.spend(begin, wait.took, saved);
        }
        let least = wait.took.saturating_mul(share);
        // Where the host is far ahead of the GPU, one wait is not enough. What it costs to wait
        // again is a part of what is measured.
        let is_doubled = wait.is_late() || !wait.has_moved && !worth.is_measured();
        let doubled = self.pause.saturating_mul(2).max(FIRST_PAUSE);
        self.pause = if is_doubled { least.max(doubled) } else { least };
        self.last = Some(wait.end);
    }

    /// A wait of a call is over that would have failed without it, so it was not asked for here.
    /// Its time is a part of the same share.
    pub(super) fn charge(&mut self, begin: Instant, took: Duration) {
        self.spend(begin, took, self.most);
    }

    /// Memory was made for moves. The time is a part of the same share, and no credit is lost.
    pub(super) fn charge_making(&mut self, begin: Instant, took: Duration) {
        self.spend(begin, took, SAVED);
    }

    /// Credit beyond `saved` is lost.
    fn spend(&mut self, begin: Instant, took: Duration, saved: Duration) {
        let earliest = begin.checked_sub(saved.saturating_mul(self.share));
        let from = [self.earns_from, earliest].into_iter().flatten().max().unwrap_or(begin);
        self.earns_from = Some(from + took.saturating_mul(self.share));
        self.spent += took;
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
        /// The call waits in any case.
        is_rescue: bool,
    }

    fn ask() -> impl Strategy<Value = Ask> {
        let pause = prop_oneof![0..1000_u64, 0..2_000_000_u64].prop_map(Duration::from_micros);
        let is_rescue = prop_oneof![9 => Just(false), 1 => Just(true)];
        (pause, 0..300_u32, any::<bool>(), is_rescue).prop_map(|(pause, percent, has_moved, is_rescue)| Ask {
            pause,
            percent,
            has_moved,
            is_rescue,
        })
    }

    /// A wait that was made, and its begin.
    #[derive(Debug)]
    struct MadeWait {
        begin: Instant,
        wait: EndedWait,
        is_rescue: bool,
    }

    /// The waits that were granted, and rescues.
    fn play(asks: &[Ask], worth: WaitWorth) -> Vec<MadeWait> {
        let (mut budget, mut now, mut waits) = (WaitBudget::new(WAIT, SHARE), Instant::now(), Vec::new());
        for Ask { pause, percent, has_moved, is_rescue } in asks.iter().cloned() {
            now += pause;
            let granted = budget.limit(now, worth);
            let Some(limit) = granted.or(is_rescue.then_some(WAIT)) else { continue };
            let (begin, took) = (now, limit * percent / 100);
            now += took;
            let wait = EndedWait { limit, took, end: now, has_moved };
            if is_rescue {
                budget.charge(begin, took);
            } else {
                budget.end(&wait, worth);
            }
            waits.push(MadeWait { begin, wait, is_rescue });
        }
        waits
    }

    proptest! {
        /// From the begin of any wait to that of any later one which is no rescue.
        #[test]
        fn until_waits_are_known_to_pay_they_have_their_share_of_the_time(
            asks in proptest::collection::vec(ask(), 0..200),
        ) {
            let waits = play(&asks, WaitWorth::Unknown);
            for (from, first) in waits.iter().enumerate() {
                let mut waited = Duration::ZERO;
                for later in &waits[from..] {
                    let time = later.begin - first.begin;
                    prop_assert!(later.is_rescue || waited * SHARE <= time, "{waited:?} of {time:?}");
                    prop_assert!(later.wait.limit <= WAIT);
                    waited += later.wait.took;
                }
            }
        }

        /// The time before the trial is counted, too.
        #[test]
        fn a_trial_spends_what_was_earned_before_it_and_no_more(
            before in 0..100_u64,
            asks in proptest::collection::vec(ask(), 0..200),
        ) {
            let (mut budget, start) = (WaitBudget::new(WAIT, SHARE), Instant::now());
            prop_assert!(budget.limit(start, WaitWorth::Costs).is_none());
            let (mut now, mut waited) = (start + Duration::from_secs(before), Duration::ZERO);
            for ask in asks {
                now += ask.pause;
                let Some(limit) = budget.limit(now, WaitWorth::Trial) else { continue };
                let (begin, took) = (now, limit * ask.percent / 100);
                prop_assert!(waited * SHARE <= begin - start, "{waited:?} of {:?}", begin - start);
                prop_assert!(waited <= SAVED + (now - start) / SHARE);
                now += took;
                waited += took;
                budget.end(&EndedWait { limit, took, end: now, has_moved: ask.has_moved }, WaitWorth::Trial);
            }
        }

        /// Against a model that keeps the two last waits only.
        #[test]
        fn each_unsuccessful_wait_doubles_the_time_until_the_next(
            asks in proptest::collection::vec(ask(), 0..200),
        ) {
            let mut waits = play(&asks, WaitWorth::Unknown);
            waits.retain(|wait| !wait.is_rescue);
            let mut least = Duration::ZERO;
            for pair in waits.windows(2) {
                let [MadeWait { wait: one, .. }, MadeWait { begin: next, .. }] = pair else { unreachable!() };
                let is_vain = !one.has_moved || one.is_late();
                let share = one.took * (SHARE - 1);
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
                let doubled = if ask.has_moved && !wait.is_late() { Duration::ZERO } else { least * 2 };
                least = doubled.max(took * (SHARE - 1)).max(FIRST_PAUSE);
            }
        }
    }

    /// Hazard (silent degradation): the waits of a trial are so rare that they change nothing.
    #[test]
    fn a_trial_has_waits_one_behind_the_other() {
        let (mut budget, start) = (WaitBudget::new(WAIT, SHARE), Instant::now());
        assert!(budget.limit(start, WaitWorth::Costs).is_none());
        let (mut now, mut count) = (start + Duration::from_secs(10), 0);
        while let Some(limit) = budget.limit(now, WaitWorth::Trial) {
            (now, count) = (now + WAIT / 2, count + 1);
            budget.end(&EndedWait { limit, took: WAIT / 2, end: now, has_moved: true }, WaitWorth::Trial);
        }
        assert!((50..=55).contains(&count), "{count} waits of 10 ms, of a share of 520 ms and more");
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
