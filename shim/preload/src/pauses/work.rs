//! The work of a pause and of a resume, in the thread that carries requests out.
//!
//! Order of a pause: host memory is made while calls go on; the gate closes; work ends; memory
//! leaves; what it leaves goes to the driver. Whatever fails before the last step is undone.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use wm_abi::{CUdevice, CUresult};
use wm_driver::{Device, Tier};
use wm_memory::{Block, Manager, MoveOrder, MoveRefusal, RangeMove};
use wm_schema::{PauseStats, StayedBytes};

use super::files::{CameBack, FileFailure, FileProgress, StoredPause, Transferring, WantedMemory};
use super::plan::{self, MovableBlock};
use crate::gate::GATE;
use crate::moves::paused::Undrained;
use crate::moves::{Migrations, pin_reason};
use crate::{physical, process, registry};

/// How long the library's own copies may take to be seen done.
const SETTLED: Duration = Duration::from_secs(1);

/// Why a process was not paused. Nothing has changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PauseError {
    #[error("this process cannot be paused: set WMSHIM_PAUSE=on when the program starts")]
    Off,
    #[error("the process exits, or was forked")]
    Exiting,
    #[error("no thread could be started for it")]
    NoThread,
    #[error("calls were being made for too long, as a copy that waits for the host")]
    Crowded,
    #[error("the calling thread is inside a CUDA call")]
    Inside,
    #[error("a stream waits for the host (a written word, a host function or a callback)")]
    Held,
    #[error("the GPU was not idle by the deadline; a kernel may wait for the host")]
    Busy,
    #[error("memory stays where it is: {0}")]
    Pinned(&'static str),
    #[error("a capture is under way")]
    Captured,
    #[error("WMSHIM_OVERFLOW does not allow memory of the host")]
    NoHost,
    #[error("the host has no room for the memory (WMSHIM_HOST_LIMIT)")]
    HostFull,
    #[error("internal failure; the program goes on")]
    Panicked,
    #[error(transparent)]
    Files(#[from] FileFailure),
    #[error(
        "neither the device nor the host has room for what lies in files; the resume goes on when there is"
    )]
    NoRoom,
    #[error(
        "memory lies in files that cannot be read: {0}; the process stays paused, and a resume tries again"
    )]
    Unread(FileFailure),
    #[error("it is not known whether the GPU is idle: {0}")]
    Unknown(CUresult),
}

/// Blocks that have left a device.
#[derive(Debug, Clone)]
pub(super) struct LeftBlocks {
    device: CUdevice,
    ids: HashSet<u64>,
}

/// What a step works with.
#[derive(Debug, Default)]
pub(super) struct Pausing {
    pub(super) limit: Duration,
    /// Where memory is to go; `None`: to the host.
    pub(super) folder: Option<PathBuf>,
    /// Where it is, if in files.
    pub(super) stored: Option<Arc<StoredPause>>,
    pub(super) left: Vec<LeftBlocks>,
}

/// A pause that was made.
#[derive(Debug, Default)]
pub(super) struct Paused {
    pub(super) left: Vec<LeftBlocks>,
    pub(super) stored: Option<Arc<StoredPause>>,
    pub(super) out: u64,
    in_files: u64,
    clean: u64,
    stayed: Vec<StayedBytes>,
    pub(super) took: Duration,
}

/// A resume that was made.
#[derive(Debug, Default)]
pub(super) struct Resumed {
    /// Blocks that stay on the host.
    pub(super) left: Vec<LeftBlocks>,
    pub(super) came: u64,
    pub(super) rest: u64,
}

impl Paused {
    pub(super) fn stayed_bytes(&self) -> u64 {
        self.stayed.iter().map(|stayed| stayed.bytes).sum()
    }

    pub(super) fn note(&self, figures: &mut PauseStats) {
        figures.pauses += 1;
        figures.pause_s = self.took.as_secs_f64();
        (figures.out_bytes, figures.clean_bytes) = (self.out, self.clean);
        figures.file_bytes = self.in_files;
        figures.stayed_bytes = self.stayed_bytes();
        figures.stayed.clone_from(&self.stayed);
    }

    fn stays(&mut self, reason: &str, bytes: u64) {
        if bytes == 0 {
            return;
        }
        match self.stayed.iter_mut().find(|known| known.reason == reason) {
            Some(known) => known.bytes += bytes,
            None => self.stayed.push(StayedBytes { reason: reason.to_owned(), bytes }),
        }
    }
}

/// Pauses the process: the gate is closed when this returns.
pub(super) fn pause(
    moves: &Migrations,
    pausing: &Pausing,
    progress: &FileProgress,
) -> Result<Paused, PauseError> {
    let folder = pausing.folder.as_deref();
    if folder.is_none() {
        make_room_ahead(moves);
    }
    let begin = Instant::now();
    let deadline = begin + pausing.limit;
    let done = GATE.keep_closed(deadline, folder.is_some(), || leave(moves, deadline, folder, progress));
    let nothing = if process::exiting() { PauseError::Exiting } else { PauseError::Crowded };
    let paused = done.unwrap_or(Err(nothing))?;
    Ok(Paused { took: begin.elapsed(), ..paused })
}

/// Host memory for what is to leave.
fn make_room_ahead(moves: &Migrations) {
    for manager in registry::all().filter(|manager| may_leave(manager)) {
        let blocks = movable(moves, manager, |block| block.tiers.device > 0);
        manager.make_spares_ahead(&plan::leaving(&blocks), || !process::exiting());
    }
}

/// Behind the closed gate.
fn leave(
    moves: &Migrations,
    deadline: Instant,
    folder: Option<&Path>,
    progress: &FileProgress,
) -> Result<Paused, PauseError> {
    if let Some(why) = pin_reason::of_process() {
        return Err(PauseError::Pinned(why));
    }
    if process::streams().capturing() {
        return Err(PauseError::Captured);
    }
    if folder.is_none() && !registry::all().all(may_leave) {
        return Err(PauseError::NoHost);
    }
    for manager in registry::all() {
        moves.drain(manager, deadline).map_err(undrained)?;
    }
    if let Some(folder) = folder {
        let paused = leave_for_files(moves, folder, progress)?;
        give_back();
        for manager in registry::all() {
            manager.give_back_elsewhere();
        }
        return Ok(paused);
    }
    let mut paused = Paused::default();
    for manager in registry::all() {
        if let Err(why) = leave_device(moves, manager, &mut paused) {
            come_back(moves, &paused.left);
            return Err(why);
        }
    }
    give_back();
    Ok(paused)
}

/// What was left behind goes to the driver, and idle memory of the device.
fn give_back() {
    for manager in registry::all() {
        physical::cache().give_back(manager, Tier::Device, u64::MAX);
        manager.relieve(u64::MAX);
    }
}

/// All that can leaves for files, from the device and from the host.
fn leave_for_files(moves: &Migrations, folder: &Path, progress: &FileProgress) -> Result<Paused, PauseError> {
    let wanted: Vec<WantedMemory> = registry::all().flat_map(|manager| wanted_of(moves, manager)).collect();
    let stored = StoredPause::write(folder, &wanted, progress)?;
    // The copies were waited for by other threads, and one of them may have failed on the way.
    for manager in registry::all() {
        moves.drain(manager, Instant::now() + SETTLED).map_err(undrained)?;
    }
    let mut paused = Paused::default();
    paused.in_files = stored.put_away(|_, bytes, why| {
        // Blocks that are free already lie nowhere.
        if why != MoveRefusal::NoBlock {
            paused.stays(why.reason(), bytes);
        }
    });
    paused.out = paused.in_files;
    paused.stored = Some(Arc::new(stored));
    Ok(paused)
}

/// The memory of a device's blocks, each handle's once.
fn wanted_of(moves: &Migrations, manager: &'static Manager<Device>) -> Vec<WantedMemory> {
    let device = manager.gpu().ordinal();
    let mut wanted = Vec::new();
    for block in movable(moves, manager, |block| block.tiers.device + block.tiers.host > 0) {
        let used = manager.used_memory(&block.range).into_iter();
        wanted.extend(used.map(|used| WantedMemory { device, used, last_use: block.last_use }));
    }
    // Of those that lie on one handle the last use counts.
    wanted.sort_by_key(|one: &WantedMemory| (one.used.range.start, std::cmp::Reverse(one.last_use)));
    wanted.dedup_by_key(|one| one.used.range.start);
    wanted
}

/// A part of a resume from files: the gate is open when all is back.
pub(super) fn resume_from_files(
    moves: &Migrations,
    stored: &StoredPause,
    progress: &FileProgress,
    how: Transferring,
) -> (CameBack, Resumed) {
    let came = GATE.open_if(|| {
        let came = stored.come_back(progress, how);
        // As above: other threads have waited for the copies.
        for manager in registry::all() {
            let _seen = moves.drain(manager, Instant::now() + SETTLED);
        }
        let is_all = came.is_all();
        (came, is_all)
    });
    let mut resumed = Resumed { came: came.device, ..Resumed::default() };
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

fn may_leave(manager: &Manager<Device>) -> bool {
    manager.settings().overflow.contains(&Tier::Host)
}

fn undrained(why: Undrained) -> PauseError {
    match why {
        Undrained::Late { is_held: true } => PauseError::Held,
        Undrained::Late { is_held: false } => PauseError::Busy,
        Undrained::Exiting => PauseError::Exiting,
        Undrained::Unknown(code) => PauseError::Unknown(code),
    }
}

/// All that can leaves a device.
fn leave_device(
    moves: &Migrations,
    manager: &Manager<Device>,
    paused: &mut Paused,
) -> Result<(), PauseError> {
    let blocks = movable(moves, manager, |block| block.tiers.device > 0);
    let ids = blocks.iter().map(|block| block.id).collect();
    let mut ranges: Vec<RangeMove> =
        plan::leaving(&blocks).into_iter().map(|range| order(range, Tier::Host)).collect();
    // Before any of it moves: if it fails, all of it comes back.
    paused.left.push(LeftBlocks { device: manager.gpu().ordinal(), ids });
    let before = manager.usage().moves;
    moves.move_paused(manager, &mut ranges);
    let after = manager.usage().moves;
    paused.out += after.out_bytes - before.out_bytes;
    paused.clean += after.clean_bytes - before.clean_bytes;
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

/// Resumes the process: the gate is open when this returns.
pub(super) fn resume(moves: &Migrations, left: &[LeftBlocks]) -> Resumed {
    let resumed = GATE.open_after(|| come_back(moves, left));
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
        let is_idle = !is_pinned && managers.all(|manager| moves.drain(manager, deadline).is_ok());
        is_idle.then(|| come_back(moves, &pausing.left))
    });
    let nothing = || Resumed { rest: rest_of(&pausing.left), ..Resumed::default() };
    came.flatten().unwrap_or_else(|| Resumed { left: pausing.left.clone(), ..nothing() })
}

/// Bytes of these blocks on the host.
fn rest_of(left: &[LeftBlocks]) -> u64 {
    let of_device = |LeftBlocks { device, ids }: &LeftBlocks| {
        let blocks = registry::existing(*device).map(|manager| manager.large_blocks(0)).unwrap_or_default();
        blocks.iter().filter(|block| ids.contains(&block.id)).map(|block| block.tiers.host).sum::<u64>()
    };
    left.iter().map(of_device).sum()
}

/// What fits comes back, the memory that was used last first.
fn come_back(moves: &Migrations, left: &[LeftBlocks]) -> Resumed {
    let mut resumed = Resumed::default();
    for LeftBlocks { device, ids } in left {
        let Some(manager) = registry::existing(*device) else { continue };
        let is_away = |block: &Block| block.tiers.host > 0 && ids.contains(&block.id);
        let ranges = plan::returning(movable(moves, manager, is_away)).into_iter();
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

fn movable(
    moves: &Migrations,
    manager: &Manager<Device>,
    is_wanted: impl Fn(&Block) -> bool,
) -> Vec<MovableBlock> {
    let blocks = manager.large_blocks(0).into_iter().filter(is_wanted);
    let movable = blocks.map(|block| MovableBlock {
        id: block.id,
        range: block.address..block.address + block.tiers.total(),
        last_use: moves.last_use_of(&block),
    });
    movable.collect()
}

fn order(range: std::ops::Range<u64>, to: Tier) -> RangeMove {
    RangeMove::new(MoveOrder { range, to, alone: false, discards: false }, u64::MAX)
}
