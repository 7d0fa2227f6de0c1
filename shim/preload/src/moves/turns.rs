//! Moves in turns: each closes the gate for a bounded time, and calls of the program pass between
//! two of them.

use std::time::{Duration, Instant};

use wm_driver::Device;
use wm_memory::{Manager, MoveOrder, MoveRefusal, RangeMove};

use super::refusals::{self, WhyNot};
use super::{obstacle, switch};
use crate::gate::GATE;
use crate::process;

/// How long to wait for calls that are being made, which is what other calls then wait for nothing.
/// The driver takes some microseconds for most.
const PATIENCE: Duration = Duration::from_millis(2);

/// The time for which calls may wait at once. Handles that were begun before its end are finished.
const TURN: Duration = Duration::from_millis(20);

/// How long a turn takes at most where no call waits: it ends with copies that nothing else is done
/// beside, and the thread's signals wait for it.
const LONG_TURN: Duration = Duration::from_millis(200);

/// Moves what an order names, handle by handle, and lets calls of the program pass between turns.
/// Nothing is waited for but calls that are being made, and copies. Bytes that moved, by size of
/// handles, and why the rest stayed. No turn begins once `most` have moved.
pub(crate) fn carry_out(manager: &Manager<Device>, order: &MoveOrder, most: u64) -> (u64, Option<WhyNot>) {
    let (mut order, mut bytes, mut refusal) = (order.clone(), 0, None);
    while order.range.start < order.range.end && bytes < most {
        match turn(manager, &order) {
            Ok((moved, next, stays)) => {
                bytes += moved;
                refusal = stays.map(WhyNot::Refused).or(refusal);
                order.range.start = next;
                if stays.is_some_and(ends) {
                    break;
                }
            }
            Err(why) => return (bytes, Some(why)),
        }
    }
    (bytes, refusal)
}

/// The same for several ranges, in both directions at once. Why some of it stays that concerns not
/// only single handles.
pub(super) fn exchange(manager: &Manager<Device>, ranges: &mut [RangeMove]) -> Option<WhyNot> {
    while !ranges.iter().all(RangeMove::is_over) {
        let before: Vec<u64> = ranges.iter().map(|range| range.moved.next).collect();
        let done = alone(manager, || {
            let begin = Instant::now();
            let limit = || if GATE.is_awaited() { TURN } else { LONG_TURN };
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

/// Will the next handle stay, too?
pub(super) fn ends(stays: MoveRefusal) -> bool {
    !matches!(
        stays,
        MoveRefusal::NoBlock
            | MoveRefusal::Unfit
            | MoveRefusal::Shared
            | MoveRefusal::Pinned
            | MoveRefusal::InUse
    )
}

type TurnResult = Result<(u64, u64, Option<MoveRefusal>), WhyNot>;

fn turn(manager: &Manager<Device>, order: &MoveOrder) -> TurnResult {
    let moved = alone(manager, || manager.move_range(order, TURN))?;
    Ok((moved.bytes, moved.next, moved.refusal))
}

/// Closes the gate, and moves memory if nothing is in the way.
fn alone<R>(manager: &Manager<Device>, moves: impl FnOnce() -> Result<R, MoveRefusal>) -> Result<R, WhyNot> {
    if !switch::is_on() {
        return Err(WhyNot::Off);
    }
    let done = GATE.with_quiesced(PATIENCE, || {
        if process::exiting() {
            return Err(WhyNot::Crowded);
        }
        if let Some(why) = obstacle::of_process() {
            return Err(WhyNot::Kept(why));
        }
        moves().map_err(WhyNot::Refused)
    });
    let done = done.unwrap_or(Err(WhyNot::Crowded));
    if let Err(why) = &done {
        refusals::note(manager.gpu().ordinal(), *why);
    }
    done
}
