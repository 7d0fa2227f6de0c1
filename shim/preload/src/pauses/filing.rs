//! The work of a pause to files, and of a resume from them.

use std::sync::Arc;

use wm_driver::{Device, Tier};
use wm_memory::{Manager, MoveRefusal};

use super::common::leaving;
use super::devices::{give_back, host_available, rest_of, see_copies_end};
use super::files::{CameBack, StorePlace, StoredPause, Transferring, WantedMemory};
use super::outcome::{LeftBlocks, PauseError, Paused, Resumed, movable};
use super::unmapped::AwayPlace;
use super::{PausedParts, coming_back};
use crate::gate::GATE;
use crate::moves::Migrations;
use crate::{physical, registry};

/// All that can leaves for files, from the device and from the host. To be called behind the
/// closed gate, once work has ended.
pub(super) fn leave(parts: PausedParts, place: &StorePlace) -> Result<Paused, PauseError> {
    let unmapped = &parts.pauses.unmapped;
    let _moving = unmapped.begin(AwayPlace::Files);
    let paused = leave_for(parts, place);
    if paused.is_err() {
        unmapped.has_ended();
    }
    paused
}

fn leave_for(parts: PausedParts, place: &StorePlace) -> Result<Paused, PauseError> {
    let mut paused = Paused::default();
    if *place == StorePlace::Memory {
        // The host has that once, not twice, and once for all processes.
        registry::all().for_each(give_back_host);
        leaving::leave(parts, &mut paused);
    }
    let copies = paused.stored.take();
    let stored = match written(parts, place) {
        Ok(stored) => stored,
        Err(why) => match leaving::undo(parts, copies) {
            Ok(()) => return Err(why),
            Err(copies) => {
                let unmapped = Some(MoveRefusal::Full);
                return Ok(Paused { stored: Some(copies), unmapped, ..paused });
            }
        },
    };
    paused.in_files = stored.put_away(|_, bytes, why| {
        // Blocks that are free already lie nowhere.
        if why != MoveRefusal::NoBlock {
            paused.stays(why.reason(), bytes);
        }
    });
    paused.out += paused.in_files;
    let stored = match &copies {
        Some(copies) => stored.with_copies(copies),
        None => stored,
    };
    paused.stored = Some(Arc::new(stored));
    give_back();
    registry::all().for_each(give_back_host);
    Ok(paused)
}

/// Writes all memory that is there. None of it has left.
fn written(
    PausedParts { pauses, moves }: PausedParts,
    place: &StorePlace,
) -> Result<StoredPause, PauseError> {
    let wanted: Vec<WantedMemory> = registry::all().flat_map(|manager| wanted_of(moves, manager)).collect();
    let stored = StoredPause::write(place, host_available(), &wanted, &pauses.progress)?;
    see_copies_end(moves)?;
    Ok(stored)
}

/// Idle memory of the host goes back to the system.
fn give_back_host(manager: &'static Manager<Device>) {
    physical::cache().give_back(manager, Tier::Host, u64::MAX);
    manager.give_back_elsewhere();
}

/// The memory of a device's blocks that is there, each handle's once.
fn wanted_of(moves: &Migrations, manager: &'static Manager<Device>) -> Vec<WantedMemory> {
    let device = manager.gpu().ordinal();
    let borrowed = manager.borrow_memory();
    let mut wanted = Vec::new();
    for (_, block) in movable(moves, manager, |block| block.tiers.device + block.tiers.host > 0) {
        let used =
            manager.used_memory(&block.range).into_iter().filter(|used| borrowed.has(used.range.start));
        wanted.extend(used.map(|used| WantedMemory { device, used, last_use: block.last_use }));
    }
    // Of those that lie on one handle the last use counts.
    wanted.sort_by_key(|one: &WantedMemory| (one.used.range.start, std::cmp::Reverse(one.last_use)));
    wanted.dedup_by_key(|one| one.used.range.start);
    wanted
}

/// A part of a resume from files, and from the host, where blocks have `left` for that, too: the
/// gate is open when all is back.
pub(super) fn resume(
    PausedParts { pauses, moves }: PausedParts,
    stored: &StoredPause,
    left: &[LeftBlocks],
    how: Transferring,
) -> (CameBack, Resumed) {
    let mut from_host = Resumed::default();
    let came = GATE.open_if(|| {
        let _moving = pauses.unmapped.begin(stored.place());
        let came = stored.come_back(&pauses.progress, how);
        let _seen = see_copies_end(moves);
        if !came.is_all() {
            return (came, false);
        }
        if how == Transferring::Usual {
            from_host = coming_back::come_back(moves, left);
        }
        from_host.unmapped = coming_back::map_all_at_last().err();
        let is_mapped = from_host.unmapped.is_none();
        if is_mapped {
            pauses.unmapped.has_ended();
        }
        (came, is_mapped)
    });
    let came_bytes = came.device + from_host.came;
    let mut resumed = Resumed { came: came_bytes, unmapped: from_host.unmapped, ..Resumed::default() };
    if came.is_all() {
        resumed.left = left_on_host();
        resumed.rest = rest_of(&resumed.left);
        for manager in resumed.left.iter().filter_map(|left| registry::existing(left.device)) {
            moves.leave_rest(manager);
        }
    }
    (came, resumed)
}

/// The blocks that lie on the host.
fn left_on_host() -> Vec<LeftBlocks> {
    let of = |manager: &'static Manager<Device>| {
        let blocks = manager.large_blocks(0).into_iter().filter(|block| block.tiers.host > 0);
        LeftBlocks { device: manager.gpu().ordinal(), ids: blocks.map(|block| block.id).collect() }
    };
    registry::all().map(of).filter(|left| !left.ids.is_empty()).collect()
}
