//! Moves in slices: each closes the gate for a bounded time, and calls of the program pass between
//! two of them.

use std::time::{Duration, Instant};

use wm_driver::Device;
use wm_memory::{Manager, MoveOrder, MoveRefusal, RangeMove};

use super::refusals::WhyNot;
use super::{Migrations, pin_reason};
use crate::gate::GATE;
use crate::process;

/// How long to wait for calls that are being made; other calls wait as long, and for no gain.
/// The driver takes some microseconds for most.
const PATIENCE: Duration = Duration::from_millis(2);

/// The time for which calls may wait at once. Handles that were begun before its end are finished.
const SLICE: Duration = Duration::from_millis(20);

/// How long a slice takes at most where no call waits: it ends with copies that nothing else is
/// done beside, and the thread's signals wait for it.
const LONG_SLICE: Duration = Duration::from_millis(200);

impl Migrations {
    /// Moves the memory that an order names, handle by handle, and lets calls of the program pass
    /// between slices. Waits for calls that are being made, and for copies, but not for the GPU.
    /// Returns why some of it was refused.
    pub(crate) fn migrate(&self, manager: &Manager<Device>, order: &MoveOrder) -> Option<WhyNot> {
        let (mut order, mut refusal) = (order.clone(), None);
        while order.range.start < order.range.end {
            let moved = match self.with_quiesced(manager, || manager.move_range(&order, SLICE)) {
                Ok(moved) => moved,
                Err(why) => return Some(why),
            };
            refusal = moved.refusal.map(WhyNot::Refused).or(refusal);
            order.range.start = moved.next;
            if moved.refusal.is_some_and(ends) {
                break;
            }
        }
        refusal
    }

    /// The same for several ranges, in both directions at once. Returns why some of it was refused,
    /// if the reason is not one of single handles.
    pub(super) fn swap(&self, manager: &Manager<Device>, ranges: &mut [RangeMove]) -> Option<WhyNot> {
        while !ranges.iter().all(RangeMove::is_over) {
            let before: Vec<u64> = ranges.iter().map(|range| range.moved.next).collect();
            let done = self.with_quiesced(manager, || {
                let begin = Instant::now();
                let limit = || if GATE.is_awaited() { SLICE } else { LONG_SLICE };
                manager.swap(ranges, || process::exiting() || begin.elapsed() >= limit())
            });
            if let Err(why) = done {
                return Some(why);
            }
            if ranges.iter().zip(before).all(|(range, before)| range.moved.next == before) {
                break;
            }
        }
        None
    }

    /// Closes the gate, and moves memory if it is not pinned.
    fn with_quiesced<R>(
        &self,
        manager: &Manager<Device>,
        moves: impl FnOnce() -> Result<R, MoveRefusal>,
    ) -> Result<R, WhyNot> {
        if !self.is_on() {
            return Err(WhyNot::Off);
        }
        let done = GATE.with_quiesced(PATIENCE, || {
            if process::exiting() {
                return Err(WhyNot::Crowded);
            }
            if let Some(why) = pin_reason::of_process() {
                return Err(WhyNot::Pinned(why));
            }
            moves().map_err(WhyNot::Refused)
        });
        let done = done.unwrap_or(Err(WhyNot::Crowded));
        if let Err(why) = &done {
            self.refusals.count(manager.gpu().ordinal(), *why);
        }
        done
    }
}

/// Will the next handle be refused, too?
fn ends(refusal: MoveRefusal) -> bool {
    use MoveRefusal::{InUse, NoBlock, Pinned, Shared, Unfit};
    !matches!(refusal, NoBlock | Unfit | Shared | Pinned | InUse)
}
