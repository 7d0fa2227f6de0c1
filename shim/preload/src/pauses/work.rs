//! The work of a pause and of a resume, in the thread that carries requests out.
//!
//! Order of a pause: host memory is made while calls go on; the gate closes; work ends; memory
//! leaves; what it leaves goes to the driver. Whatever fails before the last step is undone.

use std::time::{Duration, Instant};

use wm_driver::{Device, Tier};
use wm_memory::{Manager, MoveRefusal, RangeMove};

use super::PausedParts;
use super::coming_back::{come_back, map_all_at_last};
use super::common::leaving;
use super::devices::{drain, give_back, map_all, rest_of};
use super::outcome::{
    LeftBlocks, PauseError, PauseEvents, PauseExtent, Paused, Pausing, Resumed, blocks_that_leave,
    leave_whole,
};
use super::plan;
use super::unmapped::AwayPlace;
use super::{filing, giving_way};
use crate::gate::GATE;
use crate::moves::paused::DrainLimit;
use crate::moves::{Migrations, pin_reason};
use crate::{process, registry};

/// How long calls wait for a stream that the host holds back, if the pause is for another process.
/// What lets the stream go on may be a call that waits behind them.
const HELD: Duration = Duration::from_secs(1);

/// Pauses the process: the gate is closed when this returns.
pub(super) fn pause(parts: PausedParts, pausing: &Pausing) -> Result<Paused, PauseError> {
    let moves = parts.moves;
    let is_for_files = pausing.files.is_some();
    match &pausing.extent {
        _ if is_for_files => {}
        PauseExtent::All => prepare(parts),
        PauseExtent::Bytes(shares) => giving_way::prepare(moves, shares),
    }
    let begin = Instant::now();
    let limit = limit_of(pausing, begin);
    let deadline = if moves.may_be_held() { limit.held } else { limit.deadline };
    let leave = || {
        await_work(moves, limit, is_for_files)?;
        match &pausing.files {
            Some(place) => filing::leave(parts, place),
            None => leave_extent(parts, &pausing.extent),
        }
    };
    let done = GATE.keep_closed(deadline, leave);
    let nothing = if process::exiting() { PauseError::Exiting } else { PauseError::Crowded };
    let paused = done.unwrap_or(Err(nothing))?;
    Ok(Paused { took: begin.elapsed(), ..paused })
}

/// Nothing has asked the program to give way, so it is held up for less.
fn limit_of(pausing: &Pausing, begin: Instant) -> DrainLimit {
    let deadline = begin + pausing.limit;
    let is_for_others = pausing.extent.is_part() && pausing.files.is_none();
    DrainLimit { deadline, held: if is_for_others { deadline.min(begin + HELD) } else { deadline } }
}

/// Host memory for all that can leave, and has no copy in common with other processes.
fn prepare(parts: PausedParts) {
    let common = leaving::ranges(parts);
    for manager in registry::all().filter(|manager| may_leave(manager)) {
        let blocks = blocks_that_leave(parts.moves, manager);
        let leaving = plan::without(plan::leaving(&blocks), &common);
        manager.make_spares_ahead(&leaving, |_| !process::exiting());
    }
}

/// More leaves a process that is paused. The gate stays closed, whatever fails.
pub(super) fn leave_more(parts: PausedParts, extent: &PauseExtent) -> Result<Paused, PauseError> {
    let begin = Instant::now();
    let paused = leave_extent(parts, extent)?;
    Ok(Paused { took: begin.elapsed(), ..paused })
}

/// Behind the closed gate: memory may leave, and all work has ended.
fn await_work(moves: &Migrations, limit: DrainLimit, is_for_files: bool) -> Result<(), PauseError> {
    if let Some(why) = pin_reason::of_process() {
        return Err(PauseError::Pinned(why));
    }
    if process::streams().capturing() {
        return Err(PauseError::Captured);
    }
    if !is_for_files && !registry::all().all(may_leave) {
        return Err(PauseError::NoHost);
    }
    drain(moves, limit)
}

/// What has left comes back if not all of it can leave, and is mapped if it cannot come back.
fn leave_extent(parts: PausedParts, extent: &PauseExtent) -> Result<Paused, PauseError> {
    let PausedParts { pauses, moves } = parts;
    let moving = pauses.unmapped.begin(AwayPlace::Host);
    let _mapped = MapsInPanic;
    let mut paused = Paused::default();
    let outcome = match extent {
        PauseExtent::All => {
            leaving::leave(parts, &mut paused);
            if paused.stored.is_some() {
                moving.lies_in(AwayPlace::Copies);
            }
            leave_devices(moves, &mut paused)
        }
        PauseExtent::Bytes(shares) => giving_way::leave(moves, shares, pauses.events(), &mut paused),
    };
    let Err(why) = outcome else { return Ok(paused) };
    come_back(moves, &paused.left);
    if let Err(stored) = leaving::undo(parts, paused.stored.take()) {
        return Ok(Paused { stored: Some(stored), unmapped: Some(MoveRefusal::Full), ..paused });
    }
    match map_all() {
        Ok(()) => {
            pauses.unmapped.has_ended();
            Err(why)
        }
        // The gate must not open.
        Err(refusal) => Ok(Paused { unmapped: Some(refusal), ..paused }),
    }
}

/// The gate opens as a panic passes it: memory is mapped before.
struct MapsInPanic;

impl Drop for MapsInPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _refused = map_all();
        }
    }
}

fn leave_devices(moves: &Migrations, paused: &mut Paused) -> Result<(), PauseError> {
    let begin = Instant::now();
    for manager in registry::all() {
        leave_device(moves, manager, paused)?;
    }
    let left = begin.elapsed();
    give_back();
    log::debug!("memory left in {left:.1?}, and went to the driver in {:.1?}", begin.elapsed() - left);
    Ok(())
}

pub(super) fn may_leave(manager: &Manager<Device>) -> bool {
    manager.settings().overflow.contains(&Tier::Host)
}

/// All that can leaves a device.
fn leave_device(
    moves: &Migrations,
    manager: &Manager<Device>,
    paused: &mut Paused,
) -> Result<(), PauseError> {
    let blocks = blocks_that_leave(moves, manager);
    let ids = blocks.iter().map(|block| block.id).collect();
    let mut ranges: Vec<RangeMove> = plan::leaving(&blocks).into_iter().map(leave_whole).collect();
    // Before any of it moves: if it fails, all of it comes back.
    paused.left.push(LeftBlocks { device: manager.gpu().ordinal(), ids });
    paused.count_moves(manager, || moves.move_paused(manager, &mut ranges));
    if process::exiting() {
        return Err(PauseError::Exiting);
    }
    if ranges.iter().any(|range| range.moved.refusal == Some(MoveRefusal::Full)) {
        return Err(PauseError::HostFull);
    }
    note_stayed(manager, &ranges, paused);
    Ok(())
}

/// What has stayed on a device, by reason.
fn note_stayed(manager: &Manager<Device>, ranges: &[RangeMove], paused: &mut Paused) {
    let mut on_device = 0;
    for block in manager.large_blocks(0) {
        on_device += block.tiers.device;
        if block.tiers.device > 0 {
            let at = ranges.partition_point(|range| range.order.range.end <= block.address);
            let refusal = ranges.get(at).and_then(|range| range.moved.refusal);
            let reason =
                refusal.map_or_else(|| "it was made during the pause".to_owned(), |why| why.to_string());
            paused.stays(&reason, block.tiers.device);
        }
        paused.stays("it lies on another device", block.tiers.peer);
    }
    let usage = manager.usage();
    // The bytes of pieces that take part in moves are those of blocks that are not the manager's.
    let adopted = on_device.saturating_sub(usage.live.device);
    let fixed = usage.pieces.held.device.saturating_sub(adopted);
    paused.stays("memory of cuMemCreate that is small, shared or mapped in several places", fixed);
}

/// Resumes the process: the gate is open when this returns, unless memory of the host cannot be
/// mapped.
pub(super) fn resume(PausedParts { pauses, moves }: PausedParts, left: &[LeftBlocks]) -> Resumed {
    let events = pauses.events();
    let resumed = GATE.open_if(|| {
        let come = |left: &[LeftBlocks]| {
            let _moving = pauses.unmapped.begin(AwayPlace::Host);
            come_back_timed(moves, left, events)
        };
        let mut resumed = come(left);
        while resumed.rest > 0 && (events.has_more_room)() {
            let more = come(&resumed.left);
            resumed = Resumed { came: resumed.came + more.came, ..more };
        }
        let _moving = pauses.unmapped.begin(AwayPlace::Host);
        resumed.unmapped = map_all_at_last().err();
        let is_mapped = resumed.unmapped.is_none();
        if is_mapped {
            pauses.unmapped.has_ended();
        }
        (resumed, is_mapped)
    });
    for manager in resumed.left.iter().filter_map(|left| registry::existing(left.device)) {
        moves.leave_rest(manager);
    }
    resumed
}

/// The same for memory that stayed on the host: the gate is closed as long as it takes. If work
/// does not end, it stays there.
pub(super) fn refill(moves: &Migrations, pausing: Pausing) -> Resumed {
    let deadline = Instant::now() + pausing.limit;
    let came = GATE.with_quiesced_within(pausing.limit, pausing.limit, |_| {
        let is_pinned = pin_reason::of_process().is_some() || process::streams().capturing();
        let mut managers = registry::all();
        let is_idle = !is_pinned && managers.all(|manager| moves.drain(manager, deadline.into()).is_ok());
        is_idle.then(|| come_back(moves, &pausing.left))
    });
    let nothing = || Resumed { rest: rest_of(&pausing.left), ..Resumed::default() };
    came.flatten().unwrap_or_else(|| Resumed { left: pausing.left.clone(), ..nothing() })
}

fn come_back_timed(moves: &Migrations, left: &[LeftBlocks], events: &PauseEvents) -> Resumed {
    let begin = Instant::now();
    let resumed = come_back(moves, left);
    (events.moved)(begin.elapsed());
    resumed
}
