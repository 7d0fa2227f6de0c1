//! The waits of a process for an idle GPU: which kind of call may wait at the moment, and how long.
//!
//! Where a stream may be held by the host, no call waits: the host may be the very thread. A stream
//! is held from a call that lets the host hold it (a wait for a word, a host function, a callback)
//! until the whole device was seen idle after it.

use std::sync::Mutex;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::time::{Duration, Instant};

use wm_driver::lock;

use super::wait_budget::{EndedWait, LOOK, MAKING, RESCUE, WAIT, WaitBudget, WaitWorth, link_time};
use crate::gate::GATE;

/// Calls wait for one part in so many of the time, looks take one in [`LOOK_SHARE`]: 5 % together.
const WAIT_SHARE: u32 = 25;
const LOOK_SHARE: u32 = 100;

/// Where it is measured what waits bring, or credit is ample, each launch of so many waits for an
/// idle GPU, whether it uses memory of the host or not.
pub(super) const PACE: u64 = 8;

/// So far ahead of an idle GPU each launch waits for one. A later launch whose memory has to come
/// would not see one within its own wait: it would read the memory from the host, and be so slow
/// that those after it would not, either.
pub(super) const AHEAD: Duration = Duration::from_millis(8);

/// A rescue is not refused for the time of earlier waits, which would be a failure of the program's
/// call. Later waits are refused for its time.
const ANY_SHARE: u32 = 1;

/// See above.
pub(super) struct Waits {
    /// Of launches and allocations. The time of rescues is a part of theirs.
    calls: Mutex<WaitBudget>,
    /// At the host's own waits, and of allocations that may not wait.
    looks: Mutex<WaitBudget>,
    /// Of calls that would fail otherwise.
    rescues: Mutex<WaitBudget>,
    /// As [`GATE`] counts holds: those that were seen to have ended.
    ended_holds: AtomicU64,
    /// Waits of the program's own.
    host_waits: AtomicU64,
    /// When the GPU was seen to be idle.
    idle: Mutex<Option<Instant>>,
}

/// A wait that may be made.
pub(super) struct GrantedWait<'a> {
    /// The budget that it was asked of. `None`: of none.
    budget: Option<&'a Mutex<WaitBudget>>,
    /// The budget that its time is a part of beside that.
    charged: Option<&'a Mutex<WaitBudget>>,
    worth: WaitWorth,
    /// As the budget granted it.
    granted: Duration,
    /// How long the call waits: that time, or less where the call gains no more.
    pub(super) limit: Duration,
    /// How long memory of the host may be made for its moves.
    pub(super) makes_for: Duration,
    /// The budget that this time is a part of. `None`: the call would take as long itself, or fail.
    pays_making: Option<&'a Mutex<WaitBudget>>,
}

impl Waits {
    pub(super) const fn new() -> Self {
        Self {
            calls: Mutex::new(WaitBudget::new(WAIT, WAIT_SHARE)),
            looks: Mutex::new(WaitBudget::new(LOOK, LOOK_SHARE)),
            rescues: Mutex::new(WaitBudget::new(RESCUE, ANY_SHARE)),
            ended_holds: AtomicU64::new(0),
            host_waits: AtomicU64::new(0),
            idle: Mutex::new(None),
        }
    }

    /// Before a launch that uses memory of the host.
    pub(super) fn of_launch(&self, worth: WaitWorth) -> Option<GrantedWait<'_>> {
        (!self.is_held()).then(|| self.call(worth)).flatten().map(|wait| self.pays(wait))
    }

    /// The time in which memory is made for the wait's moves is a part of the share of calls.
    fn pays<'a>(&'a self, wait: GrantedWait<'a>) -> GrantedWait<'a> {
        GrantedWait { makes_for: MAKING, pays_making: Some(&self.calls), ..wait }
    }

    fn call(&self, worth: WaitWorth) -> Option<GrantedWait<'_>> {
        let worth = lock(&self.calls).counts_as(Instant::now(), worth);
        grant(&self.calls, worth)
    }

    /// The time that waits of launches may take by now, and how often the host has waited itself.
    pub(super) fn credit(&self) -> (Duration, u64) {
        (lock(&self.calls).credit(Instant::now()), self.host_waits.load(Relaxed))
    }

    /// The program has waited for the GPU itself, for this time.
    pub(super) fn host_waited(&self, time: Duration) {
        self.host_waits.fetch_add(1, Relaxed);
        lock(&self.calls).earn(time);
    }

    /// In an allocation of so many bytes that finds no room.
    pub(super) fn of_allocation(&self, bytes: u64, worth: WaitWorth) -> Option<GrantedWait<'_>> {
        if self.is_held() {
            return None;
        }
        let granted = self.call(worth).or_else(|| grant(&self.looks, WaitWorth::Unknown));
        // It makes as much memory itself where nothing leaves for it.
        granted.map(|wait| wait.at_most(link_time(bytes)))
    }

    /// After the host has waited for work of the program. A held stream is looked at, too: so it is
    /// seen that it is held no more.
    pub(super) fn look(&self) -> Option<GrantedWait<'_>> {
        grant(&self.looks, WaitWorth::Unknown).map(|wait| self.pays(wait))
    }

    /// In a call that would fail otherwise.
    pub(super) fn of_rescue(&self) -> Option<GrantedWait<'_>> {
        let look = || grant(&self.looks, WaitWorth::Unknown);
        (!self.is_held()).then(|| self.rescue().or_else(look)).flatten()
    }

    /// The same in a call that is made a few times in the life of a process.
    pub(super) fn of_rare_rescue(&self) -> Option<GrantedWait<'_>> {
        (!self.is_held()).then(|| self.rescue().or_else(|| self.of_last_stop())).flatten()
    }

    fn rescue(&self) -> Option<GrantedWait<'_>> {
        let wait = grant(&self.rescues, WaitWorth::Unknown)?;
        Some(GrantedWait { charged: Some(&self.calls), ..wait })
    }

    /// The last wait before nothing moves any more.
    pub(super) fn of_last_stop(&self) -> Option<GrantedWait<'_>> {
        let wait = GrantedWait::new(None, WaitWorth::Unknown, WAIT);
        (!self.is_held()).then_some(GrantedWait { charged: Some(&self.calls), ..wait })
    }

    /// The device was idle after so many holds.
    pub(super) fn end_holds(&self, holds: u64) {
        self.ended_holds.fetch_max(holds, SeqCst);
        *lock(&self.idle) = Some(Instant::now());
    }

    /// Is it long ago that the GPU was seen to be idle?
    fn is_far_ahead(&self) -> bool {
        lock(&self.idle).is_none_or(|idle| idle.elapsed() > AHEAD)
    }

    /// May the host hold a stream?
    pub(super) fn is_held(&self) -> bool {
        GATE.holds() > self.ended_holds.load(SeqCst)
    }
}

fn grant(budget: &Mutex<WaitBudget>, worth: WaitWorth) -> Option<GrantedWait<'_>> {
    let limit = lock(budget).limit(Instant::now(), worth)?;
    Some(GrantedWait::new(Some(budget), worth, limit))
}

impl<'a> GrantedWait<'a> {
    fn new(budget: Option<&'a Mutex<WaitBudget>>, worth: WaitWorth, limit: Duration) -> Self {
        let (charged, pays_making, makes_for) = (None, None, Duration::MAX);
        Self { budget, charged, worth, granted: limit, limit, makes_for, pays_making }
    }
}

impl GrantedWait<'_> {
    fn at_most(self, limit: Duration) -> Self {
        Self { limit: self.limit.min(limit), ..self }
    }

    /// Does the launch with this number wait even if it moves nothing?
    pub(super) fn paces(&self, launch: u64, waits: &Waits) -> bool {
        self.worth.is_measured() && (launch.is_multiple_of(PACE) || waits.is_far_ahead())
    }

    /// It is over, after this time.
    pub(super) fn end(&self, took: Duration, has_moved: bool) {
        let end = Instant::now();
        let wait = EndedWait { limit: self.granted, took, end, has_moved };
        if let Some(budget) = self.budget {
            lock(budget).end(&wait, self.worth);
        }
        if let Some(charged) = self.charged {
            lock(charged).charge(end.checked_sub(took).unwrap_or(end), took);
        }
    }

    /// Memory was made for its moves, in this time.
    pub(super) fn made(&self, took: Duration) {
        if let Some(budget) = self.pays_making.filter(|_| !took.is_zero()) {
            let end = Instant::now();
            lock(budget).charge_making(end.checked_sub(took).unwrap_or(end), took);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (deadlock): a launch waits for a stream that waits for the launching thread.
    use wm_abi::CUresult;

    use super::*;
    use crate::gate::Passage;

    /// One test, since the gate that counts is the process's.
    #[test]
    fn while_a_stream_may_be_held_no_call_waits() {
        let waits = Waits::new();
        let is_allowed = || {
            let worth = WaitWorth::Unknown;
            [
                waits.of_launch(worth).is_some(),
                waits.of_allocation(1 << 30, worth).is_some(),
                waits.of_rescue().is_some(),
                waits.of_last_stop().is_some(),
            ]
        };
        assert_eq!(is_allowed(), [true; 4]);
        GATE.turn_on();
        let before = GATE.holds();
        assert_eq!(GATE.pass(Passage::Hold, || CUresult::SUCCESS), CUresult::SUCCESS);
        assert_eq!(is_allowed(), [false; 4]);
        waits.end_holds(before);
        assert_eq!(is_allowed(), [false; 4], "the device was idle before that call");
        assert!(waits.look().is_some());
        waits.end_holds(GATE.holds());
        assert_eq!(is_allowed(), [true; 4]);
    }

    #[test]
    fn an_allocation_waits_no_longer_than_its_bytes_cross_the_link_and_looks_when_it_may_not_wait() {
        let waits = Waits::new();
        let limit = |bytes| waits.of_allocation(bytes, WaitWorth::Unknown).map(|wait| wait.limit);
        assert_eq!(limit(50_000_000), Some(Duration::from_millis(1)));
        assert_eq!(limit(100 << 30), Some(WAIT));
        let vain = waits.of_launch(WaitWorth::Unknown).expect("the first one");
        vain.end(WAIT, false);
        assert!(waits.of_launch(WaitWorth::Unknown).is_none());
        assert_eq!(limit(100 << 30), Some(LOOK));
        let look = waits.look().expect("the first one");
        look.end(LOOK, false);
        assert_eq!(limit(100 << 30), None);
    }

    /// Hazard (silent degradation): an allocation of few bytes ends later than its bytes would
    /// cross the link, and nothing moves for ever longer times.
    #[test]
    fn a_wait_that_was_cut_short_by_the_link_does_not_end_late() {
        let waits = Waits::new();
        for _ in 0..20 {
            let wait = waits.of_allocation(50_000, WaitWorth::Pays).expect("it is not late");
            assert_eq!(wait.limit, Duration::from_micros(1));
            wait.end(LOOK, true);
        }
        waits.of_allocation(50_000, WaitWorth::Pays).expect("a wait").end(WAIT * 2, true);
        assert_eq!(waits.of_allocation(50_000, WaitWorth::Pays).map(|wait| wait.granted), Some(LOOK));
    }

    /// Hazard (latency): calls that would fail otherwise wait beside the share of all waits. Hazard
    /// (failure): they fail, because others have used it up.
    #[test]
    fn the_time_of_rescues_is_a_part_of_the_share_of_all_calls_and_none_is_refused_for_it() {
        let waits = Waits::new();
        let is_granted = || waits.of_launch(WaitWorth::Unknown).is_some();
        assert!(is_granted());
        for _ in 0..3 {
            let rescue = waits.of_rescue().expect("earlier rescues brought room");
            assert_eq!(rescue.limit, RESCUE);
            rescue.end(Duration::from_millis(300), true);
            assert!(!is_granted());
        }
        waits.of_last_stop().expect("nothing is held").end(WAIT, true);
        assert!(waits.of_launch(WaitWorth::Pays).is_some());
        waits.of_rescue().expect("the last one brought room").end(RESCUE, false);
        assert_eq!(waits.of_rescue().map(|wait| wait.limit), Some(LOOK), "the last one was in vain");
        assert_eq!(waits.of_rare_rescue().map(|wait| wait.limit), Some(WAIT), "it is asked for rarely");
    }
}
