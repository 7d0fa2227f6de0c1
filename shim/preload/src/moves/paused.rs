//! What a pause asks of moves: that all work has ended, and that all memory leaves the device or
//! comes back to it behind a gate that is closed meanwhile.
//!
//! These moves need no predictor, no share of the program's time and no setting of when to move:
//! the program waits for them anyway.

use std::time::{Duration, Instant};

use wm_abi::CUresult;
use wm_driver::{Device, Gpu};
use wm_memory::{Block, KeepCopies, Manager, MoveRefusal, RangeMove};

use super::predictor::range_of;
use super::wait_budget::WAIT;
use super::{Migrations, pin_reason};
use crate::gate::GATE;
use crate::{process, settings};

/// How often moves are begun again that other threads' changes of memory had held up.
const TRIES: usize = 20;

/// How long such a change may take.
const CHANGE: Duration = Duration::from_millis(5);

/// Why work did not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undrained {
    /// Not by the deadline. `is_held`: the host may hold a stream back.
    Late { is_held: bool },
    /// The process exits.
    Exiting,
    /// It cannot be found out, for the driver's reason.
    Unknown(CUresult),
}

/// How long work may take to end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DrainLimit {
    pub(crate) deadline: Instant,
    /// If the host may hold a stream back. What it needs to go on may wait behind the gate.
    pub(crate) held: Instant,
}

impl From<Instant> for DrainLimit {
    fn from(deadline: Instant) -> Self {
        Self { deadline, held: deadline }
    }
}

impl Migrations {
    /// May the host hold a stream back?
    pub(crate) fn may_be_held(&self) -> bool {
        self.waits.is_held()
    }

    /// Waits until all work on a manager's device has ended. To be called behind the closed gate.
    pub(crate) fn drain(&self, manager: &Manager<Device>, limit: DrainLimit) -> Result<(), Undrained> {
        let holds = GATE.holds();
        loop {
            if process::exiting() {
                return Err(Undrained::Exiting);
            }
            let is_held = self.waits.is_held();
            let end = if is_held { limit.held.min(limit.deadline) } else { limit.deadline };
            let left = end.saturating_duration_since(Instant::now());
            match manager.gpu().is_settled(left.min(WAIT)) {
                Ok(true) => break,
                Ok(false) if left.is_zero() => {
                    return Err(Undrained::Late { is_held });
                }
                Ok(false) => {}
                Err(code) => return Err(Undrained::Unknown(code)),
            }
        }
        self.waits.end_holds(holds);
        Ok(())
    }

    /// Moves all these ranges, as far as they can move. To be called behind the closed gate, once
    /// work has ended.
    pub(crate) fn move_paused(&self, manager: &Manager<Device>, ranges: &mut [RangeMove]) {
        self.load_code_now(manager);
        if settings::load().kept_copies != KeepCopies::Off && !process::detached() {
            manager.hold_elsewhere();
        }
        self.move_all(manager, ranges);
        ranges.iter().for_each(|range| self.doubt(manager, &range.order.range));
    }

    fn move_all(&self, manager: &Manager<Device>, ranges: &mut [RangeMove]) {
        let ends = process::exiting;
        for _ in 0..TRIES {
            let before = progress(ranges);
            let are_alone = ranges.iter().all(|range| self.make_alone(&range.order.range).is_ok());
            if !are_alone {
                return;
            }
            match manager.swap_paused(ranges, ends) {
                // Work that has ended is seen late.
                Err(MoveRefusal::InUse) => {
                    let _is_over = manager.gpu().is_settled(WAIT);
                }
                Err(_) => return,
                Ok(_) if ends() || ranges.iter().all(RangeMove::is_over) => return,
                // A thread that frees memory has changed mappings meanwhile.
                Ok(_) if progress(ranges) == before => {
                    let held_up = ranges.iter().any(|range| range.moved.refusal == Some(MoveRefusal::Busy));
                    if !held_up {
                        return;
                    }
                    manager.await_changes(CHANGE);
                }
                Ok(_) => {}
            }
        }
    }

    /// The driver may wait for kernels while it loads code: now there are none.
    pub(crate) fn load_code_now(&self, manager: &Manager<Device>) {
        let is_wanted = settings::load().kept_copies != KeepCopies::Off;
        if is_wanted && !self.fingerprints.is_prepared(manager.gpu().context()) {
            manager.gpu().prepare_fingerprints();
        }
    }

    /// The number of the last launch that is known to have used a block.
    pub(crate) fn last_use_of(&self, block: &Block) -> Option<u64> {
        self.last_use.number_of(&range_of(block))
    }

    /// Some blocks have stayed on the host: they come back by moves, where these are on.
    pub(crate) fn leave_rest(&self, manager: &Manager<Device>) {
        if self.is_migrating() && pin_reason::of_process().is_none() {
            self.start_predictor(manager);
        }
    }
}

/// How far each of them has come. A range may go on before its beginning, where a handle begins.
fn progress(ranges: &[RangeMove]) -> Vec<u64> {
    ranges.iter().map(|range| range.moved.next).collect()
}
