//! The runtime of programs: a driver, bare or under the library, in processes of their own.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::moves;
use crate::partners::Partners;
use crate::pauses;
use crate::program::Program;
use crate::relays::{self, Machines};
use crate::turns::TurnMachine;

/// The allocator under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Bare,
    Library,
}

/// The longest time of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) bare: Duration,
    pub(crate) library: Duration,
}

impl Limits {
    pub(crate) fn of(self, side: Side) -> Duration {
        match side {
            Side::Bare => self.bare,
            Side::Library => self.library,
        }
    }
}

/// The runtime of programs.
#[derive(Debug, Clone)]
pub(crate) struct Bench {
    /// The simulated driver; none for the machine's own.
    pub(crate) simulated: Option<PathBuf>,
    pub(crate) library: PathBuf,
    pub(crate) devices: usize,
    /// The number of programs that share a stream, or a context that is not primary.
    pub(crate) lives: u32,
    pub(crate) limits: Limits,
    /// Memory of a simulated device.
    pub(crate) memory: String,
    pub(crate) races: bool,
    /// Seed of a simulated device's delays.
    pub(crate) delays: u64,
    /// Programs copy, and threads of the library may carry the copies.
    pub(crate) copies: bool,
    /// The library moves memory.
    pub(crate) moves: bool,
    /// The process is paused and resumed.
    pub(crate) pauses: bool,
    /// The process is limited and detached meanwhile.
    pub(crate) limits_change: bool,
    /// Calls that take long count.
    pub(crate) timed: bool,
    /// The library makes copies over several links.
    pub(crate) relays: Option<Arc<Machines>>,
    /// Calls that the library makes on a sibling, or to move memory, fail now and then.
    pub(crate) failing: bool,
    /// Other processes compete for the device's memory.
    pub(crate) partners: bool,
    /// The library's processes take turns on one machine.
    pub(crate) turns: Option<Arc<TurnMachine>>,
}

impl Bench {
    /// Partners of a process that `command` starts to run a program, if there are to be any.
    pub(crate) fn partners(&self, side: Side, command: &mut Command, first: &Program) -> Option<Partners> {
        let driver = self.simulated.as_ref().filter(|_| self.partners && side == Side::Library)?;
        Some(Partners::beside(command, driver, first))
    }

    /// Does the library move memory, for whatever reason?
    fn moves_memory(&self) -> bool {
        self.moves || self.pauses || self.turns.is_some()
    }

    /// A process that runs programs, this one first.
    pub(crate) fn command(&self, side: Side, first: &Program) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap_or_else(|_| "oracle".into()));
        let (devices, limit) = (self.devices.to_string(), self.limits.of(side).as_millis().to_string());
        command.args(["child", "--devices", &devices, "--limit", &limit]);
        command.args(["--lives", &self.lives.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Streams that share a queue of a real device delay each other.
        command.env("CUDA_DEVICE_MAX_CONNECTIONS", "32");
        // A kernel that is loaded at its first launch may wait for held streams.
        command.env("CUDA_MODULE_LOADING", "EAGER");
        if let Some(driver) = &self.simulated {
            let delays = self.delays.to_string();
            let races = if self.races { "1" } else { "0" };
            // With one device the library has less work for copies.
            let there = match &self.relays {
                Some(_) => relays::DEVICES.to_string(),
                None if self.copies || self.moves_memory() => devices.clone(),
                None => "2".to_owned(),
            };
            command.envs([("SIMCUDA_DEVICES", &there), ("SIMCUDA_MEMORY", &self.memory)]);
            command.envs([
                ("SIMCUDA_SEED", delays.as_str()),
                ("SIMCUDA_RACES", races),
                ("SIMCUDA_REUSE_HANDLES", "1"),
                ("SIMCUDA_QUIET", "1"),
            ]);
            command.env("WMSHIM_DRIVER", driver);
        }
        match (side, &self.simulated) {
            (Side::Bare, Some(driver)) => {
                command.arg("--open").arg(driver);
            }
            (Side::Bare, None) => {}
            (Side::Library, _) => {
                command.env("LD_PRELOAD", &self.library);
                self.let_relay(&mut command);
                if self.moves {
                    moves::furnish(&mut command, first);
                }
                if self.pauses {
                    pauses::furnish(&mut command);
                }
                if let Some(machine) = &self.turns {
                    machine.furnish(&mut command);
                }
                if self.limits_change {
                    command.arg("--limits");
                }
                if self.failing && self.moves_memory() {
                    moves::let_fail(&mut command, first);
                }
            }
        }
        command
    }

    fn let_threads_copy(&self, command: &mut Command) {
        if self.copies {
            command.arg("--threads");
            if self.simulated.is_some() {
                relays::let_threads_copy(command);
            }
        }
    }

    fn let_relay(&self, command: &mut Command) {
        let Some(machines) = &self.relays else { return self.let_threads_copy(command) };
        command.arg("--relays");
        if self.simulated.is_some() {
            machines.furnish(command, self.failing);
        } else if std::env::var_os("WMSHIM_MULTIPATH").is_none() {
            command.env("WMSHIM_MULTIPATH", "auto");
        }
    }
}
