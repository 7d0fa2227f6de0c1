//! Moves of live memory between the device and the host: whether there may be any, and when nothing is in their way.
//!
//! A move is sound where no work touches the memory, and nothing outside relies on where it is. Calls that submit work wait at the gate ([`crate::gate`]), what was
//! submitted before is looked for by the manager, and what relies on memory is looked for here, behind the closed gate. All of it errs towards memory that
//! stays.

mod obstacle;
mod recency;
mod refusals;
mod room;

use std::time::Duration;

use wm_driver::Device;
use wm_memory::{Manager, MoveOrder, Stays};

use crate::gate;
use crate::launches::{self, Touched};
use crate::process;
use crate::settings::{Migrate, Settings};
pub(crate) use refusals::{WhyNot, refusals};
pub(crate) use room::{come_back, leave_device, make_for};

/// How long to wait for calls that are being made, which is what other calls then wait for nothing. The driver takes some microseconds for most.
const PATIENCE: Duration = Duration::from_millis(2);

/// How long calls may be kept waiting at once, but for the handles that were begun when that is over.
const TURN: Duration = Duration::from_millis(20);

/// Decides for the whole process. To be called before the first hook is connected.
pub(crate) fn choose(settings: &Settings) {
    if settings.migrate == Migrate::Off || settings.disable {
        return;
    }
    match obstacle::of_settings(settings) {
        Some(why) => log::warn!("WMSHIM_MIGRATE has no effect with {why}"),
        None => {
            gate::turn_on();
            launches::subscribe();
        }
    }
}

/// Moves what an order names, handle by handle, and lets calls of the program pass between turns. Nothing is waited for but calls that are being made, and copies. Bytes
/// that moved, by size of handles, and why the rest stayed. No turn begins once `most` have moved.
pub(crate) fn carry_out(manager: &Manager<Device>, order: &MoveOrder, most: u64) -> (u64, Option<WhyNot>) {
    let (mut order, mut bytes, mut refusal) = (order.clone(), 0, None);
    while order.range.start < order.range.end && bytes < most {
        match turn(manager, &order) {
            Ok((moved, next, stays)) => {
                bytes += moved;
                refusal = stays.map(WhyNot::Stays).or(refusal);
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

/// A launch that may touch these blocks.
pub(crate) fn launched(touched: &Touched) {
    if gate::is_on() {
        recency::note(touched);
    }
}

/// Will the next handle stay, too?
fn ends(stays: Stays) -> bool {
    !matches!(stays, Stays::NoBlock | Stays::Unfit | Stays::Shared | Stays::Pinned | Stays::InUse)
}

type TurnResult = Result<(u64, u64, Option<Stays>), WhyNot>;

fn turn(manager: &Manager<Device>, order: &MoveOrder) -> TurnResult {
    if !gate::is_on() {
        return Err(WhyNot::Off);
    }
    let done = gate::alone(PATIENCE, || {
        if process::exiting() {
            return Err(WhyNot::Crowded);
        }
        if let Some(why) = obstacle::of_process() {
            return Err(WhyNot::Kept(why));
        }
        let moved = manager.move_range(order, TURN).map_err(WhyNot::Stays)?;
        Ok((moved.bytes, moved.next, moved.stays))
    });
    let done = done.unwrap_or(Err(WhyNot::Crowded));
    if let Err(why) = &done {
        refusals::note(manager.gpu().ordinal(), *why);
    }
    done
}
