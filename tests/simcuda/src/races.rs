//! Finds copies and memsets that race: `SIMCUDA_RACES=1`.
//!
//! Every piece of work gets a vector clock when it is pushed: for each lane, how much of it is certainly done when the work
//! begins. It is joined from the lane's last work, from the points that the work waits for, and from what the host has
//! seen done. Two accesses of overlapping bytes, one of which writes, race if neither is in the other's clock. That is judged
//! by what was ordered, not by what happened to run first: a race is found whenever both are pushed, at any speed.
//!
//! What threads of the host tell each other is not known here, so they count as one: what any of them has seen done counts
//! as seen by all. The processor's own accesses, kernels, replayed graphs and copies of rows with gaps are not looked at. So races
//! are missed, and none is made up.
//!
//! A race ends the process: an error code might be handled, and a race must not be.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::lane::Point;
use crate::settings::{complain, settings};

/// For each lane, by serial number, how many pieces of its work are certainly done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Clock(BTreeMap<u64, u64>);

impl Clock {
    fn has(&self, lane: u64, number: u64) -> bool {
        self.0.get(&lane).is_some_and(|done| *done >= number)
    }

    fn join(&mut self, other: &Self) {
        for (lane, number) in &other.0 {
            let done = self.0.entry(*lane).or_default();
            *done = (*done).max(*number);
        }
    }
}

/// A place in a lane's work, with all that is done when the lane has passed it.
#[derive(Debug)]
pub(crate) struct Stamp {
    lane: u64,
    number: u64,
    clock: Clock,
}

impl Stamp {
    fn is_before(&self, other: &Self) -> bool {
        other.clock.has(self.lane, self.number)
    }
}

/// Bytes that a piece of work uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) range: Range<u64>,
    pub(crate) writes: bool,
}

impl Access {
    fn conflicts(&self, other: &Self) -> bool {
        let overlap = self.range.start < other.range.end && other.range.start < self.range.end;
        overlap && (self.writes || other.writes)
    }
}

/// All that is known.
#[derive(Debug, Default)]
struct Races {
    /// What the host has seen done.
    host: Clock,
    /// Accesses that the host has not seen done.
    open: Vec<(Arc<Stamp>, Access)>,
}

impl Races {
    fn see(&mut self, stamp: &Stamp) {
        self.host.join(&stamp.clock);
        let host = &self.host;
        self.open.retain(|(stamp, _)| !host.has(stamp.lane, stamp.number));
    }

    /// Enters an access. Another one that it races with.
    fn enter(&mut self, stamp: &Arc<Stamp>, access: Access) -> Option<Access> {
        let races = |(other, earlier): &&(Arc<Stamp>, Access)| {
            earlier.conflicts(&access) && !other.is_before(stamp) && !stamp.is_before(other)
        };
        let found = self.open.iter().find(races).map(|(_, earlier)| earlier.clone());
        self.open.push((Arc::clone(stamp), access));
        found
    }
}

fn races() -> MutexGuard<'static, Races> {
    static RACES: Mutex<Races> = Mutex::new(Races { host: Clock(BTreeMap::new()), open: Vec::new() });
    RACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stamp of the next piece of work of a lane; `None` where races are not looked for.
pub(crate) fn stamp(
    lane: u64,
    number: u64,
    last: Option<&Arc<Stamp>>,
    after: &[Point],
) -> Option<Arc<Stamp>> {
    if !settings().races {
        return None;
    }
    let mut clock = races().host.clone();
    last.into_iter().chain(after.iter().filter_map(Point::stamp)).for_each(|stamp| clock.join(&stamp.clock));
    clock.0.insert(lane, number);
    Some(Arc::new(Stamp { lane, number, clock }))
}

/// The host has seen that a lane has passed a point.
pub(crate) fn see(stamp: Option<&Arc<Stamp>>) {
    if let Some(stamp) = stamp {
        races().see(stamp);
    }
}

/// Work that was pushed uses these bytes. Ends the process if that races with other work.
pub(crate) fn enter(point: &Point, accesses: impl IntoIterator<Item = Access>) {
    let Some(stamp) = point.stamp() else { return };
    for access in accesses {
        let found = races().enter(stamp, access.clone());
        if let Some(other) = found {
            complain(&format!("a race: {} and, not ordered with it, {}", told(&access), told(&other)));
            std::process::abort();
        }
    }
}

fn told(access: &Access) -> String {
    let Range { start, end } = access.range;
    format!("{} of {} bytes at {start:#x}", if access.writes { "a write" } else { "a read" }, end - start)
}

#[cfg(test)]
mod tests {
    //! Hazard: a race that is not found, or ordered work that is called one.
    use super::*;

    fn at(lane: u64, number: u64, after: &[&Arc<Stamp>]) -> Arc<Stamp> {
        let mut clock = Clock::default();
        after.iter().for_each(|stamp| clock.join(&stamp.clock));
        clock.0.insert(lane, number);
        Arc::new(Stamp { lane, number, clock })
    }

    fn access(range: Range<u64>, writes: bool) -> Access {
        Access { range, writes }
    }

    #[test]
    fn unordered_work_races_where_bytes_overlap_and_one_writes() {
        let mut races = Races::default();
        assert_eq!(races.enter(&at(1, 1, &[]), access(0..8, true)), None);
        assert_eq!(races.enter(&at(2, 1, &[]), access(8..16, true)), None, "other bytes");
        assert_eq!(races.enter(&at(2, 2, &[]), access(7..9, false)), Some(access(0..8, true)));
        let mut readers = Races::default();
        assert_eq!(readers.enter(&at(1, 1, &[]), access(0..8, false)), None);
        assert_eq!(readers.enter(&at(2, 1, &[]), access(0..8, false)), None, "both read");
    }

    #[test]
    fn order_passes_through_others_whichever_is_entered_first() {
        let (first, mut races) = (at(1, 1, &[]), Races::default());
        let between = at(2, 1, &[&first]);
        let last = at(3, 1, &[&between]);
        assert_eq!(races.enter(&last, access(0..8, true)), None);
        assert_eq!(races.enter(&first, access(0..8, true)), None);
    }

    #[test]
    fn what_the_host_has_seen_done_is_before_all_that_comes() {
        let (first, mut races) = (at(1, 1, &[]), Races::default());
        races.enter(&first, access(0..8, true));
        races.see(&first);
        assert_eq!((races.open.len(), races.host.has(1, 1)), (0, true));
        assert_eq!(races.enter(&at(2, 1, &[]), access(0..8, true)), None);
    }
}
