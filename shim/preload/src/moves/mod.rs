//! Moves of live memory between the device and the host: whether there may be any, and when nothing is in their way.
//!
//! A move is sound where no work touches the memory, and nothing outside relies on where it is. Calls that submit work wait at the gate ([`crate::gate`]), what was
//! submitted before is looked for by the manager, and what relies on memory is looked for here, behind the closed gate. All of it errs towards memory that
//! stays.

mod obstacle;
mod refusals;

use std::time::Duration;

use wm_driver::{Device, Tier};
use wm_memory::{Manager, MoveOrder, Stays};

use crate::gate;
use crate::process;
use crate::settings::{Migrate, Settings};
pub(crate) use refusals::{WhyNot, refusals};

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
        None => gate::turn_on(),
    }
}

/// Moves what an order names, handle by handle, and lets calls of the program pass between turns. Nothing is waited for but calls that are being made, and copies. Bytes
/// that moved, by size of handles, and why the rest stayed.
pub(crate) fn carry_out(manager: &Manager<Device>, order: &MoveOrder) -> (u64, Option<WhyNot>) {
    let (mut order, mut bytes, mut refusal) = (order.clone(), 0, None);
    while order.range.start < order.range.end {
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

/// Moves blocks to the host, those that were allocated first before others, until so many bytes of the device are free or no block is left; bytes that moved. Their
/// memory on the device is unused then, and still the manager's. Small blocks stay: others lie on the same memory.
pub(crate) fn leave_device(manager: &Manager<Device>, bytes: u64) -> u64 {
    if !gate::is_on() {
        return 0;
    }
    let mut blocks = manager.blocks();
    blocks.retain(|block| block.tiers.device > 0);
    blocks.sort_unstable_by_key(|block| block.id);
    let mut moved = 0;
    for block in blocks {
        let Some(live) = manager.block(block.address).filter(|live| live.id == block.id) else { continue };
        let range = live.address..live.address + live.tiers.total();
        let order = MoveOrder { range, to: Tier::Host, alone: true, discards: false };
        let (left, refusal) = carry_out(manager, &order);
        moved += left;
        // What does not concern the block alone: others would stay, too.
        let general = refusal.is_some_and(|refusal| !matches!(refusal, WhyNot::Stays(stays) if !ends(stays)));
        if moved >= bytes || general || refusal == Some(WhyNot::Stays(Stays::InUse)) {
            break;
        }
    }
    moved
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
