//! Memory that is mapped at no address of the program while it is paused, and the exit of such a
//! process.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use wm_driver::thread;

use super::devices::map_all;
use super::{PausedParts, Pauses, STACK};
use crate::gate::GATE;
use crate::process;

/// How long the exit waits for a step that moves memory: it ends at a chunk.
const MOVING: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_micros(200);

/// What the exit has to know, which takes no lock.
pub(super) struct UnmappedMemory {
    /// Memory may be unmapped.
    may_be: AtomicBool,
    /// It lies in files.
    in_files: AtomicBool,
    /// A step moves memory.
    moves: AtomicBool,
}

/// A step moves memory, until this is dropped.
pub(super) struct MovingStep<'a>(&'a UnmappedMemory);

impl Drop for MovingStep<'_> {
    fn drop(&mut self) {
        self.0.moves.store(false, SeqCst);
    }
}

impl UnmappedMemory {
    pub(super) const fn new() -> Self {
        Self {
            may_be: AtomicBool::new(false),
            in_files: AtomicBool::new(false),
            moves: AtomicBool::new(false),
        }
    }

    /// A step begins that moves memory, after which some may be unmapped.
    #[must_use]
    pub(super) fn begin(&self, in_files: bool) -> MovingStep<'_> {
        self.moves.store(true, SeqCst);
        self.in_files.store(in_files, SeqCst);
        self.may_be.store(true, SeqCst);
        MovingStep(self)
    }

    /// All memory is mapped, and the gate is about to open.
    pub(super) fn has_ended(&self) {
        self.may_be.store(false, SeqCst);
        self.in_files.store(false, SeqCst);
    }
}

impl Pauses {
    /// The process exits: nothing waits any more, except for memory in files. Takes no lock.
    pub(crate) fn stop(parts: PausedParts) {
        let (pauses, begin) = (parts.pauses, Instant::now());
        if !pauses.is_on() {
            return;
        }
        while pauses.unmapped.moves.load(SeqCst) && begin.elapsed() < MOVING {
            std::thread::sleep(LOOK);
        }
        if !pauses.unmapped.may_be.load(SeqCst) {
            return GATE.open_at_exit();
        }
        // A thread that waits at the gate may be waited for by an exit handler. The exit may have
        // interrupted a thread that has a lock, so another one has the memory mapped.
        if GATE.is_awaited() && !pauses.unmapped.in_files.load(SeqCst) {
            let started = thread::spawn(c"wmshim-pause", STACK, move || {
                // A pause may be at its last step.
                while !GATE.is_kept() && begin.elapsed() < MOVING {
                    std::thread::sleep(LOOK);
                }
                if parts.map_at_exit() {
                    GATE.open_at_exit();
                }
            });
            // Later steps of the exit end what our threads do.
            while started.is_ok() && GATE.is_awaited() && begin.elapsed() < MOVING {
                std::thread::sleep(LOOK);
            }
        }
    }
}

impl PausedParts {
    /// The process exits, and a call needs memory. The exit has waited for the thread that carries
    /// requests out.
    pub(super) fn resume_at_exit(self) {
        if self.pauses.unmapped.in_files.load(SeqCst) {
            return self.read_at_exit();
        }
        if self.map_at_exit() {
            GATE.open_kept();
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
