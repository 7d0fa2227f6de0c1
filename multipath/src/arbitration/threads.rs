//! How many threads a pageable copy over the target's own link may start. It has a lock and no
//! other side effect.
//!
//! A thread that copies takes a core from other threads: workers of a loader, other ranks of the
//! job. The affinity mask and the quota limit the cores of a process, and no interface reports how
//! many of these are idle. So threads are few: one for every second core, and [`MOST`] in the whole
//! process for all copies together. Their run-queue delay is measured too: the system counts how
//! long each thread ran, and how long it was ready without a core. After a long delay the next
//! copies get half as many threads. If these are too few, the driver makes the copies for a pause
//! that doubles each time. A mask that several processes share, a quota that is used up, and a busy
//! machine all show in this way.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use wm_driver::lock;

use crate::vocabulary::times::ThreadTimes;

/// Threads beside the callers' own, in a process.
pub(crate) const MOST: usize = 7;
/// With fewer threads beside the caller's own, a copy is not faster than the driver's.
pub(crate) const FEWEST: usize = 2;

/// The part of its time that a thread on a crowded machine waits for a core ...
const CROWDED: f64 = 0.2;
/// ... and the part where cores are idle.
const IDLE: f64 = 0.05;
/// The pause for which the driver makes the copies when no core is idle. It doubles with each pause
/// in a row ...
const PAUSE: Duration = Duration::from_secs(1);
/// ... up to this multiple.
const LONGEST: u32 = 256;

#[derive(Debug)]
struct BudgetState {
    lent: usize,
    /// The number that may be lent at once.
    allowed: usize,
    /// No thread is lent before this time.
    paused: Duration,
    /// The length of the next pause, in units of [`PAUSE`].
    next: u32,
}

/// The threads that copies may start.
#[derive(Debug)]
pub(crate) struct ThreadBudget {
    state: Mutex<BudgetState>,
}

impl Default for ThreadBudget {
    fn default() -> Self {
        let state = BudgetState { lent: 0, allowed: MOST, paused: Duration::ZERO, next: 1 };
        Self { state: Mutex::new(state) }
    }
}

impl ThreadBudget {
    /// Threads for a copy that can use `wanted` beside its caller's own, in a process that may use
    /// `cores` cores. Zero or at least [`FEWEST`].
    pub(crate) fn borrow(&self, cores: usize, wanted: usize, now: Duration) -> usize {
        let mut state = self.state();
        let count = state.room(cores, wanted, now);
        state.lent += count;
        count
    }

    /// The number that [`Self::borrow`] would lend now.
    pub(crate) fn room(&self, cores: usize, wanted: usize, now: Duration) -> usize {
        self.state().room(cores, wanted, now)
    }

    /// `count` lent threads have ended.
    pub(crate) fn give_back(&self, count: usize, waits: &ThreadTimes, now: Duration) {
        let mut state = self.state();
        state.lent -= count;
        match waits.part() {
            Some(part) if part > CROWDED && count > 0 => state.shrink(count, now),
            Some(part) if part < IDLE => state.grow(),
            _ => {}
        }
    }

    fn state(&self) -> MutexGuard<'_, BudgetState> {
        lock(&self.state)
    }
}

impl BudgetState {
    fn room(&self, cores: usize, wanted: usize, now: Duration) -> usize {
        let room = self.allowed.min(cores / 2).saturating_sub(self.lent).min(wanted);
        if now < self.paused || room < FEWEST { 0 } else { room }
    }

    fn shrink(&mut self, used: usize, now: Duration) {
        self.allowed = self.allowed.min(used / 2);
        if self.allowed < FEWEST {
            self.allowed = FEWEST;
            self.paused = now + PAUSE * self.next;
            self.next = (self.next * 2).min(LONGEST);
        }
    }

    fn grow(&mut self) {
        if self.allowed < MOST {
            self.allowed += 1;
        } else {
            self.next = 1;
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: threads of copies take the cores that a loader's workers or other ranks need.
    use super::*;

    const NOW: Duration = Duration::from_secs(9);

    fn waits(percent: u64) -> ThreadTimes {
        let waits = ThreadTimes::default();
        waits.add(Duration::from_millis(100 - percent), Duration::from_millis(percent));
        waits
    }

    /// A copy that is made alone, on a machine of many cores. Returns the number of its threads.
    fn copy(spare: &ThreadBudget, percent: u64, now: Duration) -> usize {
        let count = spare.borrow(64, 99, now);
        spare.give_back(count, &waits(percent), now);
        count
    }

    #[test]
    fn half_of_the_cores_and_no_more_than_is_wanted() {
        let threads = |cores, wanted| ThreadBudget::default().borrow(cores, wanted, NOW);
        assert_eq!(
            [1, 2, 3, 4, 6, 8, 16, 256].map(|cores| threads(cores, 99)),
            [0, 0, 0, 2, 3, 4, MOST, MOST]
        );
        assert_eq!([0, 1, 2, 5].map(|wanted| threads(64, wanted)), [0, 0, 2, 5]);
    }

    #[test]
    fn copies_at_once_share_them_and_those_without_any_are_the_drivers() {
        let spare = ThreadBudget::default();
        assert_eq!([5, 5, 5].map(|wanted| spare.borrow(64, wanted, NOW)), [5, 2, 0]);
        spare.give_back(5, &ThreadTimes::default(), NOW);
        assert_eq!(spare.borrow(64, 99, NOW), 5);
    }

    #[test]
    fn those_that_wait_for_cores_become_fewer_and_then_none_for_a_while_and_longer_each_time() {
        let spare = ThreadBudget::default();
        assert_eq!([50; 3].map(|percent| copy(&spare, percent, NOW)), [7, 3, 0]);
        let after = |seconds| NOW + Duration::from_secs(seconds);
        assert_eq!(copy(&spare, 50, after(1)), FEWEST);
        assert_eq!(copy(&spare, 50, after(2)), 0, "two seconds now");
        assert_eq!(copy(&spare, 50, after(3)), FEWEST);
        for _ in 0..20 {
            let paused = spare.state().paused;
            assert_eq!(copy(&spare, 50, paused), FEWEST);
        }
        let spent = spare.state();
        assert_eq!(spent.next, LONGEST);
    }

    #[test]
    fn they_come_back_one_by_one_when_cores_are_idle() {
        let spare = ThreadBudget::default();
        copy(&spare, 50, NOW);
        assert_eq!([0; 7].map(|percent| copy(&spare, percent, NOW)), [3, 4, 5, 6, 7, 7, 7]);
        assert_eq!([10; 2].map(|percent| copy(&spare, percent, NOW)), [7, 7], "neither");
        spare.give_back(0, &ThreadTimes::default(), NOW);
        assert_eq!(copy(&spare, 0, NOW), MOST, "what was not counted says nothing");
    }
}
