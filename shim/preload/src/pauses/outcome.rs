//! What a pause works on and what it comes to: blocks that move, how much of them, and the outcome.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use wm_abi::{CUdevice, CUresult};
use wm_dedup::chunk::SharableMemory;
use wm_dedup::client::CopyClient;
use wm_driver::{Device, Tier};
use wm_memory::{Block, Manager, MoveOrder, MoveRefusal, RangeMove};
use wm_schema::{PauseStats, StayedBytes};

use super::files::{FileFailure, StorePlace, StoredPause};
use super::plan::{MovableBlock, PausePhase};
use crate::moves::Migrations;

/// How much memory leaves in a pause.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum PauseExtent {
    /// All that can.
    #[default]
    All,
    /// So many bytes of some devices.
    Bytes(Vec<(CUdevice, u64)>),
}

impl PauseExtent {
    /// Does some memory stay that could leave?
    pub(super) fn is_part(&self) -> bool {
        *self != Self::All
    }
}

/// What other subsystems hear of pauses, and say of those for other processes. All are called by
/// the thread that pauses, without a lock.
#[derive(Clone, Copy)]
pub(crate) struct PauseEvents {
    /// So many bytes of a device are the driver's now.
    pub(crate) gave: fn(CUdevice, u64),
    /// The time for which memory has moved.
    pub(crate) moved: fn(Duration),
    /// Memory that has no room stays on the host. `true`: there may be more room now; waits until
    /// that is known.
    pub(crate) has_more_room: fn() -> bool,
    /// A step has ended.
    pub(crate) ended: fn(),
    /// Memory that other processes may have, too.
    pub(crate) named_memory: fn() -> Vec<SharableMemory>,
    /// A connection to the broker of copies, to be made; `None`: there is none for this process.
    pub(crate) copies: fn() -> Option<CopyClient>,
}

impl PauseEvents {
    pub(super) const NONE: Self = Self {
        gave: |_, _| {},
        moved: |_| {},
        has_more_room: || false,
        ended: || {},
        named_memory: Vec::new,
        copies: || None,
    };
}

/// How a process stands that others take turns with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TurnState {
    pub(crate) phase: PausePhase,
    /// It is paused, or is being paused, for another process.
    pub(crate) is_for_others: bool,
    /// A step is under way, or is to come.
    pub(crate) is_working: bool,
    /// A resume has left memory on the host.
    pub(crate) has_rest: bool,
}

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
    #[error("the process is detached: `wmctl attach` first")]
    Detached,
    #[error("the process is not paused")]
    NotPaused,
    #[error("it takes turns with other processes, or has memory that they use, too")]
    Beside,
    #[error(
        "the driver would not give back a process with pinned memory of the host: resume it, then \
         `wmctl pause --deep` without `--to host`"
    )]
    HostPinned,
    #[error("the driver has taken the rest of the process: `wmctl resume` gives it back")]
    Deep,
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
    #[error(
        "memory of the host could not be mapped: {0}; the process stays paused, and a resume tries again"
    )]
    Unmapped(MoveRefusal),
    #[error("it is not known whether the GPU is idle: {0}")]
    Unknown(CUresult),
}

/// Blocks that have left a device.
#[derive(Debug, Clone)]
pub(super) struct LeftBlocks {
    pub(super) device: CUdevice,
    pub(super) ids: HashSet<u64>,
}

/// What a step works with.
#[derive(Debug, Default)]
pub(super) struct Pausing {
    pub(super) limit: Duration,
    /// The files that memory is to go to; `None`: to pinned memory of the host. To files all of it
    /// goes.
    pub(super) files: Option<StorePlace>,
    /// Where it is, if in files.
    pub(super) stored: Option<Arc<StoredPause>>,
    pub(super) extent: PauseExtent,
    pub(super) left: Vec<LeftBlocks>,
}

/// A pause that was made.
#[derive(Debug, Default)]
pub(super) struct Paused {
    pub(super) left: Vec<LeftBlocks>,
    pub(super) stored: Option<Arc<StoredPause>>,
    pub(super) out: u64,
    pub(super) in_files: u64,
    /// Bytes of which the copy is one that processes have in common.
    pub(super) common: u64,
    pub(super) clean: u64,
    pub(super) stayed: Vec<StayedBytes>,
    pub(super) took: Duration,
    /// The pause has failed, and the process stays paused all the same: memory of the host cannot
    /// be mapped.
    pub(super) unmapped: Option<MoveRefusal>,
}

/// A resume that was made.
#[derive(Debug, Default)]
pub(super) struct Resumed {
    /// Blocks that stay on the host.
    pub(super) left: Vec<LeftBlocks>,
    pub(super) came: u64,
    pub(super) rest: u64,
    /// Why memory of the host is not mapped at its addresses: the gate is closed still.
    pub(super) unmapped: Option<MoveRefusal>,
}

impl Paused {
    pub(super) fn stayed_bytes(&self) -> u64 {
        self.stayed.iter().map(|stayed| stayed.bytes).sum()
    }

    pub(super) fn note(&self, figures: &mut PauseStats) {
        figures.pauses += 1;
        figures.pause_s = self.took.as_secs_f64();
        (figures.out_bytes, figures.clean_bytes) = (self.out, self.clean);
        (figures.file_bytes, figures.common_bytes) = (self.in_files, self.common);
        figures.is_in_memory = self.stored.as_ref().is_some_and(|stored| stored.is_in_memory());
        figures.stayed_bytes = self.stayed_bytes();
        figures.stayed.clone_from(&self.stayed);
    }

    /// Makes moves out of a device, and counts them.
    pub(super) fn count_moves(&mut self, manager: &Manager<Device>, make: impl FnOnce()) {
        let before = manager.usage().moves;
        make();
        let after = manager.usage().moves;
        self.out += after.out_bytes - before.out_bytes;
        self.clean += after.clean_bytes - before.clean_bytes;
    }

    pub(super) fn stays(&mut self, reason: &str, bytes: u64) {
        if bytes == 0 {
            return;
        }
        match self.stayed.iter_mut().find(|known| known.reason == reason) {
            Some(known) => known.bytes += bytes,
            None => self.stayed.push(StayedBytes { reason: reason.to_owned(), bytes }),
        }
    }
}

/// Blocks that may move, each with its bytes on the device.
pub(super) fn movable(
    moves: &Migrations,
    manager: &Manager<Device>,
    is_wanted: impl Fn(&Block) -> bool,
) -> Vec<(u64, MovableBlock)> {
    let blocks = manager.large_blocks(0).into_iter().filter(is_wanted);
    let movable = blocks.map(|block| {
        let range = block.address..block.address + block.tiers.total();
        let last_use = moves.last_use_of(&block);
        (block.tiers.device, MovableBlock { id: block.id, range, last_use })
    });
    movable.collect()
}

/// Blocks that leave a device in a pause.
pub(super) fn blocks_that_leave(moves: &Migrations, manager: &Manager<Device>) -> Vec<MovableBlock> {
    let blocks = movable(moves, manager, |block| block.tiers.device > 0);
    blocks.into_iter().map(|(_, block)| block).collect()
}

/// Blocks of one device in one place.
pub(super) fn merged(left: Vec<LeftBlocks>) -> Vec<LeftBlocks> {
    let mut merged: Vec<LeftBlocks> = Vec::new();
    for LeftBlocks { device, ids } in left {
        match merged.iter_mut().find(|known| known.device == device) {
            Some(known) => known.ids.extend(ids),
            None => merged.push(LeftBlocks { device, ids }),
        }
    }
    merged
}

/// A range leaves the device and is not mapped then, or comes back.
pub(super) fn order(range: Range<u64>, to: Tier) -> RangeMove {
    RangeMove::new(MoveOrder { unmaps: to == Tier::Host, ..MoveOrder::new(range, to) }, u64::MAX)
}

/// A range leaves the device, and gives up what other processes use too.
pub(super) fn leave_whole(range: Range<u64>) -> RangeMove {
    let whole = order(range, Tier::Host);
    RangeMove::new(MoveOrder { unshares: true, ..whole.order }, u64::MAX)
}
