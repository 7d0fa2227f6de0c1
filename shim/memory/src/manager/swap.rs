//! Moves of many handles, out of the device and into it at the same time: the link carries both
//! ways at once, and the handles that leave make the room, and the spares, for those that come.
//!
//! Each way is a lane: its handles are begun in the order of their ranges, a few at a time, and
//! while the oldest of them takes its place the others are being copied. A lane for whose next
//! handle there is no memory stands until a move has ended. Where other threads wait meanwhile, no
//! memory is made: see [`Manager::make_spares`].
//!
//! To map memory takes the driver a millisecond while copies are queued, or until they are over. So
//! where both ways are used few handles are under way, and what comes is begun first: its spare is
//! mapped while nothing is copied, and then both ways are copied at once. Meanwhile what came
//! before is unmapped, and what has left is mapped on the host, which takes longest.
//!
//! Only where nothing is in flight: see [`Manager::move_handle`] for the duties of the caller.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wm_driver::{Gpu, LinkWay, Tier};

use super::Manager;
use super::migrate::StartedMove;
use crate::state::swap::{TakenFingerprints, way};
use crate::vocabulary::moves::{MoveOrder, MoveRefusal, MovedRange, RangeMove, SpareLack, SpareSource};

/// Handles of one way whose copies are started before the first of them is waited for. Until the
/// copy ends each handle holds two pieces of memory, and mapping one takes about as long as copying
/// it.
pub(super) const WINDOW: usize = 4;

/// The same of each way, where both are used.
const PAIRED_WINDOW: usize = 2;

/// The lanes, in the order in which moves are begun.
const WAYS: [LinkWay; 2] = [LinkWay::In, LinkWay::Out];
const IN: usize = 0;
const OUT: usize = 1;

/// The moves of one way.
struct MoveLane {
    way: LinkWay,
    /// The range that is moved now.
    at: usize,
    /// Each with the number of its range, the oldest first.
    under_way: VecDeque<(usize, Box<StartedMove>)>,
    goes_on: bool,
    /// There was no memory for a handle of so many bytes, to be on that tier.
    stands: Option<(Tier, u64)>,
    /// Idle memory was given back for it.
    is_relieved: bool,
}

/// When moves end, and what is done beside them.
pub(super) struct SwapEnds<'a> {
    /// No handle is begun any more.
    pub(super) is_over: &'a dyn Fn() -> bool,
    /// Copies that are under way are given up.
    pub(super) gives_up: &'a dyn Fn() -> bool,
    pub(super) fingerprints: FingerprintTime,
    pub(super) source: SpareSource,
}

/// When the fingerprints of what moves are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FingerprintTime {
    /// Beside the copies, as these go on.
    Beside,
    /// Before the first copy, and by the caller after the last one.
    Apart,
    /// None are noted: work may begin again, behind no gate, and a fingerprint would be that of its
    /// bytes.
    Never,
}

/// How fast handles move.
struct MeasuredPace {
    /// The end of the last one.
    last: Instant,
    /// The time of fingerprints by then.
    spent: Duration,
    /// Bytes that came since fingerprints were noted.
    came: u64,
}

/// The outcome of the try to begin the next move of a range.
enum NextMove {
    Begun(Box<StartedMove>),
    /// There is no memory for a handle of so many bytes.
    Stands(u64),
    /// All of it was tried.
    Over,
    /// No other one will move either.
    End,
}

impl<G: Gpu> Manager<G> {
    /// As [`Manager::move_handle`], for every handle that lies in a range. It is looked once
    /// whether work is over; copies of several handles are under way at a time. No handle is begun
    /// once `limit` is over.
    ///
    /// # Errors
    /// Why nothing can move now. The reasons of single handles are in the answer.
    pub fn move_range(&self, order: &MoveOrder, limit: Duration) -> Result<MovedRange, MoveRefusal> {
        let mut ranges = [RangeMove::new(order.clone(), u64::MAX)];
        let until = Instant::now() + limit;
        self.swap(&mut ranges, || Instant::now() >= until)?;
        let [range] = ranges;
        Ok(range.moved)
    }

    /// As [`Manager::move_range`], for several ranges. Those that leave the device go in their
    /// order, and those that come to it in theirs, at the same time. No handle is begun once it
    /// `is_over`.
    ///
    /// # Errors
    /// Why nothing can move now.
    pub fn swap(&self, ranges: &mut [RangeMove], is_over: impl Fn() -> bool) -> Result<(), MoveRefusal> {
        let source = SpareSource::Made;
        self.swap_within(ranges, source, is_over, || false).map(drop)
    }

    /// As [`Manager::swap`]; moves whose copies are under way are given up once the caller
    /// `gives_up`. Returns the memory that was lacking, where none is to be made.
    ///
    /// # Errors
    /// Why nothing can move now.
    pub fn swap_within(
        &self,
        ranges: &mut [RangeMove],
        source: SpareSource,
        is_over: impl Fn() -> bool,
        gives_up: impl Fn() -> bool,
    ) -> Result<Vec<SpareLack>, MoveRefusal> {
        self.settle_for(ranges)?;
        let within = SwapEnds {
            is_over: &is_over,
            gives_up: &gives_up,
            fingerprints: FingerprintTime::Beside,
            source,
        };
        let lacks = self.swap_settled(ranges, &within);
        self.note_kept_copies(is_over, gives_up);
        Ok(lacks)
    }

    /// As [`Manager::swap`], for a caller behind whose gate the program waits until all has moved.
    /// The fingerprints of all are taken before the first copy or after the last one: beside copies
    /// a call of the GPU takes a millisecond. Copies that are under way are given up as well once
    /// it `is_over`.
    ///
    /// # Errors
    /// Why nothing can move now.
    pub fn swap_paused(
        &self,
        ranges: &mut [RangeMove],
        is_over: impl Fn() -> bool,
    ) -> Result<(), MoveRefusal> {
        self.settle_for(ranges)?;
        let (fingerprints, source) = (FingerprintTime::Apart, SpareSource::Made);
        let within = SwapEnds { is_over: &is_over, gives_up: &is_over, fingerprints, source };
        self.swap_settled(ranges, &within);
        self.note_kept_copies(&is_over, &is_over);
        Ok(())
    }

    /// Is all work over, so that these can move?
    fn settle_for(&self, ranges: &[RangeMove]) -> Result<(), MoveRefusal> {
        let Some(first) = ranges.first() else { return Ok(()) };
        self.settle().inspect_err(|refusal| self.count_move(first.order.to, Err(*refusal)))
    }

    /// The same, for a caller that knows that no work touches the ranges now.
    pub(super) fn swap_settled(&self, ranges: &mut [RangeMove], within: &SwapEnds<'_>) -> Vec<SpareLack> {
        for range in ranges.iter().filter(|range| range.order.to == Tier::Host && !range.is_over()) {
            self.evict_views_of(
                &(range.moved.next..range.order.range.end),
                range.most.saturating_sub(range.begun),
            );
        }
        self.run_lanes(ranges, within)
    }

    fn run_lanes(&self, ranges: &mut [RangeMove], within: &SwapEnds<'_>) -> Vec<SpareLack> {
        let mut lanes = WAYS.map(MoveLane::new);
        let mut taken = TakenFingerprints::new();
        if within.fingerprints == FingerprintTime::Apart {
            let leaving = ranges.iter().filter(|range| range.order.to == Tier::Host && !range.is_over());
            self.take_all_fingerprints(leaving.map(RangeMove::rest), &mut taken, within.is_over);
        }
        let mut pace = MeasuredPace::new(self.fingerprint_time());
        loop {
            let has_begun = self.begin_moves(&mut lanes, ranges, &mut taken, within);
            if lanes.iter().all(|lane| lane.under_way.is_empty()) {
                if within.source != SpareSource::Made {
                    return lanes.iter().filter_map(MoveLane::lack).collect();
                }
                if !(within.is_over)() && lanes.iter_mut().any(|lane| self.relieve_lane(lane)) {
                    continue;
                }
                lanes.iter().filter_map(MoveLane::lack).for_each(|lack| self.note_full(&lack, ranges));
                return Vec::new();
            }
            let least = if has_begun { PAIRED_WINDOW } else { 1 };
            if lanes.iter().all(|lane| lane.under_way.len() >= least) {
                self.unmap_oldest_ahead(&mut lanes[IN]);
            }
            for index in [OUT, IN] {
                if lanes[index].under_way.len() < least {
                    continue;
                }
                if !self.end_oldest(&mut lanes, index, ranges, (&mut pace, within)) {
                    return Vec::new();
                }
            }
        }
    }

    /// Begins moves of both lanes, as many as may be under way. Has one begun?
    fn begin_moves(
        &self,
        lanes: &mut [MoveLane; 2],
        ranges: &mut [RangeMove],
        taken: &mut TakenFingerprints,
        within: &SwapEnds<'_>,
    ) -> bool {
        let mut has_begun = false;
        for index in 0..lanes.len() {
            loop {
                let own = lanes.iter().map(|lane| lane.under_way.len()).sum();
                let window = if lanes.iter().all(|lane| lane.goes_on) { PAIRED_WINDOW } else { WINDOW };
                if !lanes[index].is_free(window) || (within.is_over)() || !self.may_begin(lanes) {
                    break;
                }
                has_begun |= self.begin_in(&mut lanes[index], ranges, own, (taken, within));
            }
        }
        has_begun
    }

    /// Unmaps the oldest handle of a lane, if its copies are over.
    fn unmap_oldest_ahead(&self, lane: &mut MoveLane) {
        let oldest = lane.under_way.front_mut().map(|(_, one)| one);
        if let Some(oldest) = oldest.filter(|one| self.is_copied(one, Instant::now())) {
            self.unmap_ahead(oldest);
        }
    }

    /// Ends the oldest move of a lane. `false`: its copies take too long, and all are given up.
    fn end_oldest(
        &self,
        lanes: &mut [MoveLane; 2],
        index: usize,
        ranges: &mut [RangeMove],
        (pace, within): (&mut MeasuredPace, &SwapEnds<'_>),
    ) -> bool {
        let Some((at, one)) = lanes[index].under_way.pop_front() else { return true };
        if !self.is_copied_unless(&one, within.gives_up) {
            // What is unmapped already was copied.
            let unmapped = |lane: &mut MoveLane| lane.under_way.pop_front_if(|(_, one)| one.is_unmapped());
            for (at, one) in lanes.iter_mut().filter_map(unmapped) {
                self.conclude_in(&mut ranges[at], *one);
            }
            let rest = lanes.iter_mut().flat_map(|lane| lane.under_way.drain(..));
            self.strand_all(ranges, std::iter::once((at, one)).chain(rest));
            return false;
        }
        let (bytes, copied) = (one.bytes(), one.copied());
        let goes_on = self.conclude_in(&mut ranges[at], *one);
        self.record_pace(pace, bytes, copied);
        if within.fingerprints == FingerprintTime::Beside && lanes[index].way == LinkWay::In {
            self.note_batch(pace, bytes, within);
        }
        for lane in lanes {
            lane.goes_on &= goes_on;
            lane.stands = None;
        }
        true
    }

    /// The time that fingerprints have taken so far.
    fn fingerprint_time(&self) -> Duration {
        self.lock().fingerprint_pace.spent()
    }

    /// A handle's move has ended.
    fn record_pace(&self, pace: &mut MeasuredPace, bytes: u64, copied: u64) {
        let took = std::mem::replace(&mut pace.last, Instant::now()).elapsed();
        let mut state = self.lock();
        let spent = state.fingerprint_pace.spent();
        let printing = spent.saturating_sub(std::mem::replace(&mut pace.spent, spent));
        state.flight.record(bytes, took);
        state.flight.record_copy(bytes, copied, took.saturating_sub(printing));
    }

    /// Notes the fingerprints of what came, once there is enough of it for a call: the others'
    /// copies go on meanwhile.
    fn note_batch(&self, pace: &mut MeasuredPace, bytes: u64, within: &SwapEnds<'_>) {
        pace.came += bytes;
        if pace.came >= self.lock().fingerprint_pace.batch() {
            pace.came = 0;
            self.note_fingerprints(|| (within.is_over)() || (within.gives_up)());
        }
    }

    fn may_begin(&self, lanes: &[MoveLane]) -> bool {
        let under_way = lanes.iter().flat_map(|lane| &lane.under_way);
        self.lock().flight.may_begin(under_way.map(|(_, one)| one.bytes()).sum())
    }

    /// Begins the next move of a lane, if there is one. `own` moves are under way. Has it begun?
    fn begin_in(
        &self,
        lane: &mut MoveLane,
        ranges: &mut [RangeMove],
        own: usize,
        within: (&mut TakenFingerprints, &SwapEnds<'_>),
    ) -> bool {
        let index = lane.at;
        let Some([range, later @ ..]) = ranges.get_mut(index..) else {
            lane.goes_on = false;
            return false;
        };
        if way(range.order.to) != lane.way || range.is_over() {
            lane.at += 1;
            return false;
        }
        match self.begin_next((range, later), own, within) {
            NextMove::Begun(one) => {
                lane.is_relieved = false;
                lane.under_way.push_back((index, one));
                return true;
            }
            NextMove::Stands(bytes) => lane.stands = Some((range.order.to, bytes)),
            NextMove::Over => lane.at += 1,
            NextMove::End => lane.goes_on = false,
        }
        false
    }

    /// Begins the next move of a range, with others behind it. `own` moves of the caller are under
    /// way.
    fn begin_next(
        &self,
        (range, later): (&mut RangeMove, &[RangeMove]),
        own: usize,
        (taken, within): (&mut TakenFingerprints, &SwapEnds<'_>),
    ) -> NextMove {
        let RangeMove { order, moved, begun, from, most } = range;
        while moved.next < order.range.end {
            let address = moved.next;
            let found = self.lock().occupied_range(address);
            let Some((handle, tier)) = found else {
                moved.next = (address / self.rules.granularity + 1) * self.rules.granularity;
                continue;
            };
            moved.next = handle.end;
            if tier == order.to || from.is_some_and(|from| tier != from) {
                continue;
            }
            if order.to == Tier::Host && self.lacks_fingerprints(address, taken) {
                let rest = (address..order.range.end, most.saturating_sub(*begun));
                let leaves = |range: &&RangeMove| range.order.to == Tier::Host && !range.is_over();
                let behind = later.iter().filter(leaves).map(RangeMove::rest);
                self.take_fingerprints(std::iter::once(rest).chain(behind), taken, within.is_over);
            }
            match self.begin_move(address, order, own, taken, within.source) {
                Ok(started) => {
                    *begun += handle.end - handle.start;
                    return NextMove::Begun(Box::new(started));
                }
                Err(MoveRefusal::Full) => {
                    moved.next = handle.start;
                    return NextMove::Stands(handle.end - handle.start);
                }
                Err(refusal) => {
                    self.count_move(order.to, Err(refusal));
                    moved.refusal = Some(refusal);
                    if refusal.is_general() {
                        moved.next = handle.start;
                        return NextMove::End;
                    }
                }
            }
        }
        NextMove::Over
    }

    /// A copy takes too long: that move and all others under way are given up together.
    fn strand_all(
        &self,
        ranges: &mut [RangeMove],
        under_way: impl Iterator<Item = (usize, Box<StartedMove>)>,
    ) {
        let (indices, moves): (Vec<_>, Vec<_>) = under_way.unzip();
        self.strand(moves.into_iter().map(|one| *one));
        for index in indices {
            self.count_move(ranges[index].order.to, Err(MoveRefusal::Slow));
            ranges[index].moved.refusal = Some(MoveRefusal::Slow);
        }
    }

    /// Ends a move whose copies are over. Will others move?
    fn conclude_in(&self, range: &mut RangeMove, started: StartedMove) -> bool {
        let one = self.conclude(started);
        self.count_move(range.order.to, one);
        let moved = &mut range.moved;
        match one {
            Ok(one) => {
                (moved.bytes, moved.count) = (moved.bytes + one.bytes, moved.count + 1);
                true
            }
            Err(refusal) => {
                moved.refusal = Some(refusal);
                !refusal.is_general()
            }
        }
    }

    /// Nothing is under way, and a lane stands. Idle handles of other sizes may have the memory
    /// that it lacks: they are given back, once for each handle. `false` where there are none.
    fn relieve_lane(&self, lane: &mut MoveLane) -> bool {
        let Some((tier, bytes)) = lane.stands.filter(|_| lane.goes_on && !lane.is_relieved) else {
            return false;
        };
        lane.is_relieved = true;
        let is_relieved = self.relieve_tier(tier, bytes) > 0;
        if is_relieved {
            lane.stands = None;
        }
        is_relieved
    }

    /// There is no memory for a range.
    pub(super) fn note_full(&self, lack: &SpareLack, ranges: &mut [RangeMove]) {
        let Some(range) = ranges.get_mut(lack.at) else { return };
        self.count_move(range.order.to, Err(MoveRefusal::Full));
        range.moved.refusal = Some(MoveRefusal::Full);
    }
}

impl MeasuredPace {
    fn new(spent: Duration) -> Self {
        Self { last: Instant::now(), spent, came: 0 }
    }
}

impl MoveLane {
    fn new(way: LinkWay) -> Self {
        Self { way, at: 0, under_way: VecDeque::new(), goes_on: true, stands: None, is_relieved: false }
    }

    /// The memory that it stands for.
    fn lack(&self) -> Option<SpareLack> {
        let (tier, bytes) = self.stands.filter(|_| self.goes_on)?;
        Some(SpareLack { at: self.at, tier, bytes })
    }

    /// May it begin another move, where so many are under way at most?
    fn is_free(&self, window: usize) -> bool {
        self.goes_on && self.stands.is_none() && self.under_way.len() < window
    }
}
