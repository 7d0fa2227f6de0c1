//! The exit of a process that is paused.

use std::time::{Duration, Instant};

use wm_abi::CUresult;
use wm_driver::{Api, thread};

use super::devices::map_all;
use super::unmapped::AwayPlace;
use super::{PausedParts, Pauses, STACK};
use crate::gate::GATE;
use crate::process::{self, driver};

/// How long the exit waits for a step that moves memory: it ends at a chunk.
const MOVING: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_micros(200);

impl Pauses {
    /// The process exits: nothing waits any more, except for memory in files. Takes no lock.
    pub(crate) fn stop(parts: PausedParts) {
        let (pauses, begin) = (parts.pauses, Instant::now());
        if !pauses.is_on() {
            return;
        }
        while pauses.unmapped.is_moving() && begin.elapsed() < MOVING {
            std::thread::sleep(LOOK);
        }
        if !pauses.unmapped.may_be() {
            return GATE.open_at_exit();
        }
        // A thread that waits at the gate may be waited for by an exit handler. The exit may have
        // interrupted a thread that has a lock, so another one has the memory mapped.
        if parts.has_waiters() {
            let started = thread::spawn(c"wmshim-pause", STACK, move || {
                // A pause may be at its last step.
                while !GATE.is_kept() && begin.elapsed() < MOVING {
                    std::thread::sleep(LOOK);
                }
                parts.open_for_waiters();
            });
            // Later steps of the exit end what our threads do.
            while started.is_ok() && GATE.is_awaited() && begin.elapsed() < MOVING {
                std::thread::sleep(LOOK);
            }
        }
    }
}

impl PausedParts {
    /// Does a thread wait at the gate for memory that lies on the host?
    fn has_waiters(self) -> bool {
        GATE.is_awaited() && self.pauses.unmapped.place() != AwayPlace::Files
    }

    /// The process exits. A thread that came before the gate was kept closed has not said that it
    /// waits, and an exit handler may wait for it.
    pub(super) fn open_for_waiters(self) {
        if !self.has_waiters() {
            return;
        }
        match self.pauses.unmapped.place() {
            AwayPlace::Files => {}
            AwayPlace::Copies => self.read_at_exit(),
            AwayPlace::Host if self.map_at_exit() => GATE.open_at_exit(),
            AwayPlace::Host => {}
        }
    }

    /// The process exits, and a call needs memory. The exit has waited for the thread that carries
    /// requests out.
    pub(super) fn resume_at_exit(self) {
        if self.pauses.unmapped.place() != AwayPlace::Host {
            self.read_at_exit();
        } else if self.map_at_exit() {
            GATE.open_kept();
        }
        // A driver that has ended refuses each call, and a call that waited would never be refused.
        if GATE.is_kept() && driver().ctx_current() == Err(CUresult::DEINITIALIZED) {
            GATE.open_at_exit();
        }
    }

    /// Maps memory that lies on the host. `false`: the driver refuses, and the gate stays closed.
    fn map_at_exit(self) -> bool {
        debug_assert!(process::exiting());
        let mapped = map_all();
        if let Err(why) = mapped {
            log::error!("memory of the paused process is not mapped at its exit; a call waits: {why}");
            return false;
        }
        self.pauses.unmapped.has_ended();
        true
    }
}
