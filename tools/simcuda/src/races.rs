//! Finds work that races: `SIMCUDA_RACES=1`.
//!
//! Every piece of work gets a vector clock when it is pushed: for each lane, the number of pieces
//! that are certainly done when the work begins. It is joined from the lane's last work, from the
//! points that the work waits for, and from the work that the host has seen done. Two accesses to
//! one physical byte, of which one is more than a read, race if neither is in the other's clock.
//! The order of the calls decides that, not the order of execution: a race is found whenever both
//! are pushed, at any speed. Memory that the host unmaps or frees at once races with every access
//! that the host has not seen done.
//!
//! The accesses of a piece of work are declared when it is made, so that they are known again when
//! a graph replays it. A graph is one piece of work: races among its nodes are not checked. Bytes
//! are identified by their place in physical memory and not by address, as a handle can be mapped
//! at several.
//!
//! The simulator does not see how threads of the host synchronise, so they count as one: work that
//! any of them has seen done counts as seen by all. A word that a stream writes is seen by the host
//! once another stream is told to wait for it; words that the host or a kernel writes give no
//! order. The processor's own accesses, and kernels that [`crate::footprint`] does not know, are
//! not checked.
//!
//! A race ends the process: a program might handle an error code, and must not handle a race. The
//! message has the last accesses of the bytes, with the threads that asked for them.

mod history;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::entry::Outcome;
use crate::lane::{Point, Work};
use crate::memory::map::Piece;
use crate::settings::{complain, settings};
use crate::state::driver;
use history::History;

/// For each lane, by serial number, how many pieces of its work are certainly done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Clock(BTreeMap<u64, u64>);

impl Clock {
    const NONE: Self = Self(BTreeMap::new());

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

/// A place in a lane's work, with all work that is done when the lane has passed it.
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

/// The kind of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    Write,
    Allocation,
    Free,
}

/// Bytes that a piece of work uses, by address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) range: Range<u64>,
    pub(crate) what: Use,
}

impl Access {
    pub(crate) fn read(range: Range<u64>) -> Self {
        Self { range, what: Use::Read }
    }

    pub(crate) fn write(range: Range<u64>) -> Self {
        Self { range, what: Use::Write }
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// An access, and the places of its bytes.
#[derive(Debug, Clone)]
struct Placed {
    access: Access,
    pieces: Vec<Piece>,
}

impl Placed {
    /// With the present places of the bytes.
    fn now(access: &Access) -> Self {
        Self { access: access.clone(), pieces: driver().memory().pieces(access.range.clone()) }
    }

    /// Are some bytes the same?
    fn shares(&self, other: &Self) -> bool {
        let shares = |piece: &Piece| {
            other.pieces.iter().any(|p| p.file == piece.file && overlap(&p.range, &piece.range))
        };
        self.pieces.iter().any(shares)
    }

    fn conflicts(&self, other: &Self) -> bool {
        let writes = self.access.what != Use::Read || other.access.what != Use::Read;
        writes && self.shares(other)
    }
}

/// The state of the checker.
#[derive(Debug)]
struct Races {
    /// The work that the host has seen done.
    host: Clock,
    /// Accesses that the host has not seen done.
    open: Vec<(Arc<Stamp>, Placed)>,
    /// By address, the writer of each word that others wait for.
    words: BTreeMap<u64, Arc<Stamp>>,
    history: History,
}

impl Races {
    const NONE: Self =
        Self { host: Clock::NONE, open: Vec::new(), words: BTreeMap::new(), history: History::NONE };

    fn see(&mut self, stamp: &Stamp) {
        self.host.join(&stamp.clock);
        let host = &self.host;
        self.open.retain(|(stamp, _)| !host.has(stamp.lane, stamp.number));
    }

    /// Adds an access. Returns another one that it races with.
    fn enter(&mut self, stamp: &Arc<Stamp>, placed: Placed) -> Option<Access> {
        let races = |(other, earlier): &&(Arc<Stamp>, Placed)| {
            !other.is_before(stamp) && !stamp.is_before(other) && earlier.conflicts(&placed)
        };
        let found = self.open.iter().find(races).map(|(_, earlier)| earlier.access.clone());
        self.open.push((Arc::clone(stamp), placed));
        found
    }

    /// An access that the host has not seen done, through these addresses to these bytes.
    fn unseen(&self, gone: &Placed) -> Option<Access> {
        let is_it = |placed: &&Placed| {
            placed.access.what != Use::Free
                && overlap(&placed.access.range, &gone.access.range)
                && placed.conflicts(gone)
        };
        self.open.iter().map(|(_, placed)| placed).find(is_it).map(|placed| placed.access.clone())
    }
}

fn races() -> MutexGuard<'static, Races> {
    static RACES: Mutex<Races> = Mutex::new(Races::NONE);
    RACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stamp of the next piece of work of a lane; `None` if races are not checked.
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

/// A stream writes a word that others may wait for.
pub(crate) fn signal(point: &Point, word: u64) {
    if let Some(stamp) = point.stamp() {
        races().words.insert(word, Arc::clone(stamp));
    }
}

/// A stream is told to wait for a word.
pub(crate) fn await_signal(word: u64) {
    if settings().races {
        let stamp = races().words.get(&word).cloned();
        see(stamp.as_ref());
    }
}

type Job = dyn Fn() -> Outcome + Send + Sync;

/// The accesses of pieces of work. While a weak reference exists, the address of a dropped piece is
/// not reused.
type Declared = HashMap<usize, (Weak<Job>, Arc<[Access]>)>;

fn declared() -> MutexGuard<'static, Option<Declared>> {
    static DECLARED: Mutex<Option<Declared>> = Mutex::new(None);
    DECLARED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn place_of(work: &Work) -> usize {
    Arc::as_ptr(work).cast::<()>() as usize
}

/// Declares the accesses of a piece of work, for all its runs.
pub(crate) fn declare(work: Work, accesses: impl FnOnce() -> Vec<Access>) -> Work {
    if settings().races {
        let mut declared = declared();
        let all = declared.get_or_insert_default();
        if all.len().is_power_of_two() {
            all.retain(|_, (work, _)| work.strong_count() > 0);
        }
        all.insert(place_of(&work), (Arc::downgrade(&work), accesses().into()));
    }
    work
}

/// Declares that a piece of work makes all accesses of the others.
pub(crate) fn declare_all<'a>(work: Work, parts: impl IntoIterator<Item = &'a Work>) -> Work {
    if !settings().races {
        return work;
    }
    let accesses: Vec<Access> = parts.into_iter().flat_map(|part| uses(part).to_vec()).collect();
    declare(work, || accesses)
}

fn uses(work: &Work) -> Arc<[Access]> {
    let declared = declared();
    let found = declared.as_ref().and_then(|all| all.get(&place_of(work)));
    found.map_or_else(Arc::default, |(_, accesses)| Arc::clone(accesses))
}

/// The accesses of a piece of work, and their places before the work can run.
#[derive(Debug, Default)]
pub(crate) struct Uses(Vec<Placed>);

impl Uses {
    /// The accesses of work that is about to be pushed.
    pub(crate) fn of(work: &Work) -> Self {
        if settings().races { Self(uses(work).iter().map(Placed::now).collect()) } else { Self::default() }
    }

    /// The work was pushed. Ends the process if it races with other work.
    pub(crate) fn enter(self, point: &Point) {
        let Some(stamp) = point.stamp() else { return };
        for placed in self.0 {
            let mut races = races();
            races.history.note_work(stamp, &placed);
            if let Some(other) = races.enter(stamp, placed.clone()) {
                let race = format!("{} and, not ordered with it, {}", told(&placed.access), told(&other));
                end(&race, &races.history.of(&placed));
            }
        }
    }
}

/// The host removes memory at once. Ends the process if that races with work.
pub(crate) fn leave(range: Range<u64>, how: &str) {
    if settings().races {
        let gone = Placed::now(&Access { range, what: Use::Free });
        let mut races = races();
        races.history.note_removal(how, &gone);
        if let Some(other) = races.unseen(&gone) {
            let start = gone.access.range.start;
            let race = format!("{how} at {start:#x} and, not seen done, {}", told(&other));
            end(&race, &races.history.of(&gone));
        }
    }
}

/// `last`: the last accesses of the bytes.
fn end(race: &str, last: &[String]) -> ! {
    last.iter().for_each(|line| complain(line));
    complain(&format!("a race: {race}"));
    std::process::abort();
}

fn told(access: &Access) -> String {
    let Range { start, end } = access.range;
    let what = match access.what {
        Use::Read => "a read",
        Use::Write => "a write",
        Use::Allocation => "an allocation",
        Use::Free => "a free",
    };
    format!("{what} of {} bytes at {start:#x}", end - start)
}

#[cfg(test)]
mod tests {
    //! Hazard: a race is not found, or ordered work is reported as one.
    use super::*;

    fn at(lane: u64, number: u64, after: &[&Arc<Stamp>]) -> Arc<Stamp> {
        let mut clock = Clock::default();
        after.iter().for_each(|stamp| clock.join(&stamp.clock));
        clock.0.insert(lane, number);
        Arc::new(Stamp { lane, number, clock })
    }

    /// An access through one of the addresses of the bytes.
    fn placed(address: u64, bytes: Range<u64>, what: Use) -> Placed {
        let range = address..address + (bytes.end - bytes.start);
        Placed { access: Access { range, what }, pieces: vec![Piece { file: 1, range: bytes }] }
    }

    fn access(bytes: Range<u64>, what: Use) -> Placed {
        placed(bytes.start, bytes, what)
    }

    #[test]
    fn unordered_work_races_where_bytes_overlap_and_one_writes() {
        let mut races = Races::NONE;
        assert_eq!(races.enter(&at(1, 1, &[]), access(0..8, Use::Write)), None);
        assert_eq!(races.enter(&at(2, 1, &[]), access(8..16, Use::Write)), None, "other bytes");
        let found = races.enter(&at(2, 2, &[]), access(7..9, Use::Read));
        assert_eq!(found, Some(access(0..8, Use::Write).access));
        let mut readers = Races::NONE;
        assert_eq!(readers.enter(&at(1, 1, &[]), access(0..8, Use::Read)), None);
        assert_eq!(readers.enter(&at(2, 1, &[]), access(0..8, Use::Read)), None, "both read");
    }

    #[test]
    fn bytes_are_told_apart_by_where_they_lie() {
        let mut races = Races::NONE;
        assert_eq!(races.enter(&at(1, 1, &[]), placed(0x1000, 0..8, Use::Write)), None);
        assert!(races.enter(&at(2, 1, &[]), placed(0x9000, 0..8, Use::Read)).is_some(), "another address");
    }

    #[test]
    fn order_passes_through_others_whichever_is_entered_first() {
        let (first, mut races) = (at(1, 1, &[]), Races::NONE);
        let between = at(2, 1, &[&first]);
        let last = at(3, 1, &[&between]);
        assert_eq!(races.enter(&last, access(0..8, Use::Write)), None);
        assert_eq!(races.enter(&first, access(0..8, Use::Write)), None);
    }

    #[test]
    fn what_the_host_has_seen_done_is_before_all_that_comes() {
        let (first, mut races) = (at(1, 1, &[]), Races::NONE);
        races.enter(&first, access(0..8, Use::Write));
        let gone = |bytes| access(bytes, Use::Free);
        assert!(races.unseen(&gone(4..12)).is_some() && races.unseen(&gone(8..12)).is_none());
        let elsewhere = placed(0x1000, 0..8, Use::Free);
        assert!(races.unseen(&elsewhere).is_none(), "the bytes are still there at the address in use");
        races.see(&first);
        assert_eq!((races.open.len(), races.host.has(1, 1)), (0, true));
        assert!(races.unseen(&gone(4..12)).is_none());
        assert_eq!(races.enter(&at(2, 1, &[]), access(0..8, Use::Write)), None);
    }
}
