//! Memory that lies on the host comes back, and what stays there is mapped.

use std::time::{Duration, Instant};

use wm_driver::Tier;
use wm_memory::{Block, MoveRefusal, RangeMove};

use super::devices::map_all;
use super::outcome::{LeftBlocks, Resumed, movable, order};
use super::plan;
use crate::moves::Migrations;
use crate::{process, registry};

/// How long copies that were given up, since they took too long, may take to end.
const COPIES: Duration = Duration::from_secs(60);

/// As [`map_all`], once copies to such addresses have ended.
pub(super) fn map_all_at_last() -> Result<(), MoveRefusal> {
    let begin = Instant::now();
    loop {
        match map_all() {
            Err(MoveRefusal::Slow) if begin.elapsed() < COPIES && !process::exiting() => {}
            mapped => return mapped,
        }
    }
}

/// What fits comes back, the memory that was used last first.
pub(super) fn come_back(moves: &Migrations, left: &[LeftBlocks]) -> Resumed {
    let mut resumed = Resumed::default();
    for LeftBlocks { device, ids } in left {
        let Some(manager) = registry::existing(*device) else { continue };
        let is_away = |block: &Block| block.tiers.host > 0 && ids.contains(&block.id);
        let away = movable(moves, manager, is_away).into_iter().map(|(_, block)| block);
        let ranges = plan::returning(away.collect()).into_iter();
        let mut ranges: Vec<RangeMove> =
            ranges.map(|range| order(range, Tier::Device).only_from(Tier::Host)).collect();
        moves.move_paused(manager, &mut ranges);
        resumed.came += ranges.iter().map(|range| range.moved.bytes).sum::<u64>();
        let rest: Vec<Block> = manager.large_blocks(0).into_iter().filter(is_away).collect();
        if !rest.is_empty() {
            resumed.rest += rest.iter().map(|block| block.tiers.host).sum::<u64>();
            let ids = rest.iter().map(|block| block.id).collect();
            resumed.left.push(LeftBlocks { device: *device, ids });
        }
    }
    resumed
}
