//! The subsystems of the process, as one value.
//!
//! Each subsystem is a struct with its state, and tests build it by itself. [`PROCESS`] owns the
//! one of each that serves the program's calls. Its initial value is a constant: nothing runs at
//! load, and a call pays for no look-up. A forked child makes real calls only, so its copy of this
//! value is used no more; `entry/lifecycle.rs` closes the sockets there.
//!
//! The layers below keep what they own themselves: a subsystem that others import (`gate`,
//! `registry`, `launches`, `physical`) cannot ask for it here.

use crate::dedup::Sharing;
use crate::endpoint::StatisticsEndpoint;
use crate::guard::Guards;
use crate::ipc::SharedMemory;
use crate::moves::Migrations;
use crate::overflow::OverflowLog;
use crate::pauses::{PausedParts, Pauses};
use crate::profile::Profiler;
use crate::torch::TorchMemory;
use crate::trace::Recordings;
use crate::turns::{TurnParts, Turns};

/// The subsystems that hooks, reports and the exit handler use.
pub(crate) struct Process {
    pub(crate) endpoint: StatisticsEndpoint,
    pub(crate) guard: Guards,
    pub(crate) ipc: SharedMemory,
    pub(crate) moves: Migrations,
    pub(crate) overflow: OverflowLog,
    pub(crate) pauses: Pauses,
    pub(crate) profile: Profiler,
    pub(crate) sharing: Sharing,
    pub(crate) torch: TorchMemory,
    pub(crate) trace: Recordings,
    pub(crate) turns: Turns,
}

pub(crate) static PROCESS: Process = Process {
    endpoint: StatisticsEndpoint::new(),
    guard: Guards::new(),
    ipc: SharedMemory::new(),
    moves: Migrations::new(),
    overflow: OverflowLog::new(),
    pauses: Pauses::new(),
    profile: Profiler::new(),
    sharing: Sharing::new(),
    torch: TorchMemory::new(),
    trace: Recordings::new(),
    turns: Turns::new(),
};

impl Process {
    /// What pauses work on.
    pub(crate) fn paused_parts(&'static self) -> PausedParts {
        PausedParts { pauses: &self.pauses, moves: &self.moves }
    }

    /// What turns work on.
    pub(crate) fn turn_parts(&'static self) -> TurnParts {
        TurnParts { turns: &self.turns, paused: self.paused_parts() }
    }
}
