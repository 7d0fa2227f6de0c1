//! A pause for another process: as many bytes leave as it needs there, and the rest stays.
//!
//! Memory leaves in batches, and what a batch leaves goes to the driver before the next one: the
//! other process takes it meanwhile.

use std::time::Instant;

use wm_abi::CUdevice;
use wm_driver::{Device, Tier};
use wm_memory::{Manager, MoveRefusal, RangeMove};

use super::outcome::{LeftBlocks, PauseError, PauseEvents, Paused, movable, order};
use super::plan::{self, MovableBlock};
use crate::moves::Migrations;
use crate::{physical, process, registry};

/// Most bytes that leave before others hear of it.
const BATCH: u64 = 512 << 20;

/// A batch is no larger than this share of what leaves, so that the other direction begins early.
const SHARE: u64 = 8;

/// Smallest batch.
const LEAST: u64 = 16 << 20;

/// Blocks of a device that may leave, the one first that was used longest ago.
fn leavers(moves: &Migrations, manager: &Manager<Device>) -> Vec<(u64, MovableBlock)> {
    let mut leavers = movable(moves, manager, |block| block.tiers.device > 0);
    leavers.sort_by_key(|(bytes, block)| (block.last_use, std::cmp::Reverse(*bytes), block.range.start));
    leavers
}

/// Host memory for what will leave.
pub(super) fn prepare(moves: &Migrations, shares: &[(CUdevice, u64)]) {
    for (device, bytes) in shares {
        let Some(manager) = registry::existing(*device) else { continue };
        let leavers = leavers(moves, manager);
        let first = &leavers[..plan::count_for(leavers.iter().map(|(bytes, _)| *bytes), *bytes)];
        let blocks: Vec<MovableBlock> = first.iter().map(|(_, block)| block.clone()).collect();
        manager.make_spares_ahead(&plan::leaving(&blocks), |_| !process::exiting());
    }
}

/// Lets so much leave. To be called behind the closed gate, once work has ended.
pub(super) fn leave(
    moves: &Migrations,
    shares: &[(CUdevice, u64)],
    events: &PauseEvents,
    paused: &mut Paused,
) -> Result<(), PauseError> {
    let begin = Instant::now();
    let mut outcome = Ok(());
    for (device, bytes) in shares {
        let Some(manager) = registry::existing(*device) else { continue };
        outcome = leave_device(moves, manager, *bytes, events, paused);
        if outcome.is_err() {
            break;
        }
    }
    (events.moved)(begin.elapsed());
    outcome
}

fn leave_device(
    moves: &Migrations,
    manager: &Manager<Device>,
    wanted: u64,
    events: &PauseEvents,
    paused: &mut Paused,
) -> Result<(), PauseError> {
    let device = manager.gpu().ordinal();
    let mut given = 0;
    let give = |given: &mut u64| {
        let bytes = physical::give_back(manager, u64::MAX);
        *given += bytes;
        (events.gave)(device, bytes);
    };
    give(&mut given);
    let leavers = leavers(moves, manager);
    let mut rest = &leavers[..];
    let batch = (wanted / SHARE).clamp(LEAST, BATCH);
    while given < wanted && !rest.is_empty() {
        let next = (wanted - given).min(batch);
        let (first, later) = rest.split_at(plan::count_for(rest.iter().map(|(bytes, _)| *bytes), next));
        rest = later;
        let blocks: Vec<MovableBlock> = first.iter().map(|(_, block)| block.clone()).collect();
        // Before any of it moves: if it fails, all of it comes back.
        paused.left.push(LeftBlocks { device, ids: blocks.iter().map(|block| block.id).collect() });
        let ranges = plan::leaving(&blocks).into_iter();
        let mut ranges: Vec<RangeMove> = ranges.map(|range| order(range, Tier::Host)).collect();
        paused.count_moves(manager, || moves.move_paused(manager, &mut ranges));
        give(&mut given);
        if process::exiting() {
            return Err(PauseError::Exiting);
        }
        if ranges.iter().any(|range| range.moved.refusal == Some(MoveRefusal::Full)) {
            return Err(PauseError::HostFull);
        }
    }
    paused.stays("no other process needs its place", manager.usage().together.live.device);
    Ok(())
}
