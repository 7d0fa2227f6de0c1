//! The arena: host memory that lies ready for a pause, made while the program runs.
//!
//! To make and pin host memory takes longer than the copies of a pause. So the thread that carries
//! requests out makes it ahead, a handle at a time, and leaves off for every other request. A
//! client asks for it once; with `WMSHIM_PAUSE_ARENA` it follows the memory that the program holds,
//! a moment behind. A thread of the program does no more for that than read a flag.
//!
//! The memory is the manager's idle memory of the host. Moves take it, and it stays until it is
//! given back on request.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use wm_driver::host;

use crate::settings::PauseArena;
use crate::{process, registry};

/// The arena of the process.
pub(super) struct Arena {
    /// Most bytes that it has by itself; 0: it is made on request alone.
    pub(super) most: AtomicU64,
    /// It was given back, and is not made again before that is asked for.
    pub(super) is_given_back: AtomicBool,
    /// A look at what the program holds is due.
    pub(super) is_due: AtomicBool,
}

impl Arena {
    pub(super) const fn new() -> Self {
        Self {
            most: AtomicU64::new(0),
            is_given_back: AtomicBool::new(false),
            is_due: AtomicBool::new(false),
        }
    }

    /// Decides whether it follows the program.
    pub(super) fn choose(&self, setting: PauseArena) {
        let most = match setting {
            PauseArena::Off => 0,
            PauseArena::Auto => u64::MAX,
            PauseArena::AtMost(size) => size.of(host::whole()),
        };
        self.most.store(most, Relaxed);
    }

    /// Is it made by itself now?
    pub(super) fn follows(&self) -> bool {
        self.most.load(Relaxed) > 0 && !self.is_given_back.load(Relaxed) && !process::detached()
    }
}

/// Bytes of the host that lie ready for memory that leaves.
pub(super) fn ready_bytes() -> u64 {
    registry::all().map(|manager| manager.usage().idle.host).sum()
}
