//! Moves in slices: each closes the gate for a bounded time, and calls of the program pass between
//! two of them.

use std::cell::Cell;
use std::time::{Duration, Instant};

use wm_driver::{Device, Gpu, Tier};
use wm_memory::{KeepCopies, Manager, MoveOrder, MoveRefusal, RangeMove, SpareLack, SpareSource};

use super::refusals::WhyNot;
use super::wait_budget::LOOK;
use super::{Migrations, pin_reason};
use crate::gate::{GATE, Mover, PASSING};
use crate::{process, settings};

/// How long to wait for calls that are being made; other calls wait as long, and for no gain.
/// The driver takes some microseconds for most.
const PATIENCE: Duration = Duration::from_millis(2);

/// How long calls wait before no handle begins any more, less the time that the longest of the
/// slice took: with [`PATIENCE`], and the handles under way, no call waits longer than 20 ms.
const SLICE: Duration = Duration::from_millis(15);

/// How long a slice takes where no call waits: it ends with copies that nothing else is done
/// beside.
const LONG_SLICE: Duration = Duration::from_millis(200);

/// How long a signal waits for copies before they are given up. No handle begins while it waits.
const SIGNAL: Duration = Duration::from_millis(3);

/// Slices in a row in which no handle moved, since signals ended them or other threads took the
/// memory that was made for them, after which the rest stays.
const INTERRUPTIONS: u32 = 20;

/// What a slice may cost the program.
#[derive(Debug, Clone, Copy)]
pub(super) struct SliceCost {
    /// How long the gate is closed until calls that are being made are over and the GPU has no work
    /// left. Zero: it is idle already.
    pub(super) drain: Duration,
    /// How long calls wait beside that before no handle begins any more.
    pub(super) calls: Duration,
    /// How long memory is made between slices: no more begins then.
    pub(super) makes_for: Duration,
}

impl SliceCost {
    /// For what the library does by itself.
    pub(super) const USUAL: Self = Self { drain: Duration::ZERO, calls: SLICE, makes_for: Duration::MAX };

    /// How long calls that are being made are waited for.
    fn patience(self) -> Duration {
        PATIENCE.max(self.drain / 4)
    }

    /// The rest of that time, for the GPU.
    fn settling(self) -> Duration {
        self.drain.saturating_sub(self.patience())
    }
}

/// How moves in slices ended.
pub(super) struct SwapEnd {
    /// Why some of them were refused, if the reason is not one of single handles.
    pub(super) why: Option<WhyNot>,
    /// How long memory was made, while the gate was open.
    pub(super) made_for: Duration,
}

/// How a slice ended.
struct SliceEnd {
    is_interrupted: bool,
    lacks: Vec<SpareLack>,
}

/// When a slice ends.
struct Slice<'a> {
    mover: &'a Mover<'a>,
    /// How long calls wait.
    calls: Duration,
    begin: Instant,
    /// Since when a signal waits for the thread, and a call for the gate, as far as was looked.
    signal: Cell<Option<Instant>>,
    call: Cell<Option<Instant>>,
    /// The last time that it was asked whether the slice is over, and the longest time between two.
    asked: Cell<Instant>,
    longest: Cell<Duration>,
}

impl<'a> Slice<'a> {
    fn begin(mover: &'a Mover<'a>, calls: Duration) -> Self {
        let begin = Instant::now();
        let (signal, call) = (Cell::new(None), Cell::new(None));
        Self {
            mover,
            calls,
            begin,
            signal,
            call,
            asked: Cell::new(begin),
            longest: Cell::new(Duration::ZERO),
        }
    }

    /// Does no handle begin any more?
    fn is_over(&self) -> bool {
        self.look();
        let step = self.asked.replace(Instant::now()).elapsed();
        self.longest.set(self.longest.get().max(step));
        let is_late = has_waited(&self.call, self.calls.saturating_sub(self.longest.get()))
            || self.begin.elapsed() >= LONG_SLICE;
        process::exiting() || self.is_interrupted() || is_late
    }

    /// Are copies that are under way given up?
    fn gives_up(&self) -> bool {
        self.look();
        has_waited(&self.signal, SIGNAL)
    }

    fn is_interrupted(&self) -> bool {
        self.signal.get().is_some()
    }

    fn look(&self) {
        note(&self.signal, || self.mover.has_signal());
        note(&self.call, || self.mover.is_awaited());
    }
}

/// Notes the time from which on it is so.
fn note(since: &Cell<Option<Instant>>, is_so: impl FnOnce() -> bool) {
    if since.get().is_none() && is_so() {
        since.set(Some(Instant::now()));
    }
}

fn has_waited(since: &Cell<Option<Instant>>, time: Duration) -> bool {
    since.get().is_some_and(|since| since.elapsed() >= time)
}

impl Migrations {
    /// As [`migrate`](Self::migrate), for the program's own wish.
    pub(crate) fn advised(&self, manager: &Manager<Device>, order: &MoveOrder) -> Option<WhyNot> {
        if order.to == Tier::Device && self.lacks_code(manager) && manager.movable_on_host() > 0 {
            if !manager.gpu().is_settled(LOOK).unwrap_or(false) {
                return Some(WhyNot::Refused(MoveRefusal::InUse));
            }
            self.load_code(manager);
        }
        self.migrate(manager, order)
    }

    /// Moves the memory that an order names, handle by handle, and lets calls of the program pass
    /// between slices. Waits for calls that are being made, and for copies, but not for the GPU.
    /// Returns why some of it was refused.
    pub(crate) fn migrate(&self, manager: &Manager<Device>, order: &MoveOrder) -> Option<WhyNot> {
        let mut ranges = [RangeMove::new(order.clone(), u64::MAX)];
        let end = self.swap(manager, &mut ranges, PASSING);
        self.doubt(manager, &order.range);
        let [range] = ranges;
        end.why.or(range.moved.refusal.map(WhyNot::Refused))
    }

    /// The same for several ranges, in both directions at once. The first slice waits no longer
    /// than `patience` until threads that wait have passed. Memory that the moves need is made
    /// between slices.
    pub(super) fn swap(
        &self,
        manager: &Manager<Device>,
        ranges: &mut [RangeMove],
        patience: Duration,
    ) -> SwapEnd {
        self.swap_at(manager, ranges, patience, SliceCost::USUAL)
    }

    /// The same at other costs than the usual ones.
    pub(super) fn swap_at(
        &self,
        manager: &Manager<Device>,
        ranges: &mut [RangeMove],
        patience: Duration,
        cost: SliceCost,
    ) -> SwapEnd {
        let mut made_for = Duration::ZERO;
        let why = self.swap_all(manager, ranges, patience, cost, &mut made_for);
        SwapEnd { why, made_for }
    }

    fn swap_all(
        &self,
        manager: &Manager<Device>,
        ranges: &mut [RangeMove],
        patience: Duration,
        cost: SliceCost,
        made_for: &mut Duration,
    ) -> Option<WhyNot> {
        let (mut fruitless, mut passing, mut source) = (0, patience.min(PASSING), manager.first_source());
        while !ranges.iter().all(RangeMove::is_over) {
            let before: Vec<u64> = ranges.iter().map(|range| range.moved.next).collect();
            // Most of it while the gate is open. What the driver refuses here it refuses there.
            let _made = self.make_all_alone(ranges);
            let end = match self.slice(manager, ranges, source, (passing, cost)) {
                Ok(end) => end,
                Err(why) => return Some(why),
            };
            passing = PASSING;
            let has_moved = ranges.iter().zip(before).any(|(range, before)| range.moved.next != before);
            let next = if end.lacks.is_empty() {
                (has_moved || end.is_interrupted).then_some(source)
            } else {
                let (begin, left) = (Instant::now(), cost.makes_for.saturating_sub(*made_for));
                let goes_on = || !process::exiting() && begin.elapsed() < left;
                let made = manager.make_spares(ranges, &end.lacks, source, goes_on);
                *made_for += begin.elapsed();
                made.or_else(|| has_moved.then_some(source))
            };
            fruitless = if has_moved { 0 } else { fruitless + 1 };
            match next {
                Some(_) if fruitless > INTERRUPTIONS => return Some(WhyNot::Crowded),
                Some(next) => source = next,
                None => break,
            }
        }
        None
    }

    /// What comes from the host gets fingerprints, and these need code on the GPU. It is loaded
    /// before the gate closes, where the program waits for the GPU itself or advises a move: the
    /// driver may wait for kernels that run while it loads code. What comes before it is loaded is
    /// copied out again. The device was just seen to be idle.
    pub(super) fn load_code(&self, manager: &Manager<Device>) {
        if self.lacks_code(manager) {
            manager.gpu().prepare_fingerprints();
        }
    }

    pub(super) fn lacks_code(&self, manager: &Manager<Device>) -> bool {
        settings::load().kept_copies != KeepCopies::Off
            && self.is_on()
            && !self.fingerprints.is_prepared(manager.gpu().context())
            && pin_reason::of_process().is_none()
    }

    /// One slice.
    fn slice(
        &self,
        manager: &Manager<Device>,
        ranges: &mut [RangeMove],
        source: SpareSource,
        (passing, cost): (Duration, SliceCost),
    ) -> Result<SliceEnd, WhyNot> {
        self.with_quiesced(manager, (passing, cost.patience()), |mover| {
            if !cost.drain.is_zero() && !manager.gpu().is_settled(cost.settling())? {
                return Err(MoveRefusal::InUse);
            }
            let slice = Slice::begin(mover, cost.calls);
            self.make_all_alone(ranges)?;
            let lacks = manager.swap_within(ranges, source, || slice.is_over(), || slice.gives_up())?;
            Ok(SliceEnd { is_interrupted: slice.is_interrupted(), lacks })
        })
    }

    fn make_all_alone(&self, ranges: &[RangeMove]) -> Result<(), MoveRefusal> {
        let mut left = ranges.iter().filter(|range| !range.is_over());
        left.try_for_each(|range| self.make_alone(&range.order.range))
    }

    /// Closes the gate, and moves memory if it is not pinned.
    fn with_quiesced<R>(
        &self,
        manager: &Manager<Device>,
        (passing, patience): (Duration, Duration),
        moves: impl FnOnce(&Mover<'_>) -> Result<R, MoveRefusal>,
    ) -> Result<R, WhyNot> {
        if !self.is_on() {
            return Err(WhyNot::Off);
        }
        let done = GATE.with_quiesced_within(patience, passing, |mover| {
            if process::exiting() {
                return Err(WhyNot::Crowded);
            }
            if let Some(why) = pin_reason::of_process() {
                return Err(WhyNot::Pinned(why));
            }
            moves(mover).map_err(WhyNot::Refused)
        });
        let done = done.unwrap_or(Err(WhyNot::Crowded));
        if let Err(why) = &done {
            self.refusals.count(manager.gpu().ordinal(), *why);
        }
        done
    }
}
