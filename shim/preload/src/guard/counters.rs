//! What guards have seen, counted, and what they could not watch, said once a reason.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What guards have seen. One place to add a counter: a field here, and its line in `guard::statistics`.
pub(super) struct GuardCounters {
    /// Blocks that got a guard.
    pub(super) guarded: AtomicU64,
    /// Times that a tail was compared.
    pub(super) looks: AtomicU64,
    /// Blocks that were written past their end.
    pub(super) overrun: AtomicU64,
    /// Blocks that should have had a guard and did not, or were freed without a look.
    pub(super) unwatched: AtomicU64,
}

pub(super) static SEEN: GuardCounters = GuardCounters {
    guarded: AtomicU64::new(0),
    looks: AtomicU64::new(0),
    overrun: AtomicU64::new(0),
    unwatched: AtomicU64::new(0),
};

/// Why a block has no guard, or was not looked at when it was freed.
#[derive(Clone, Copy)]
pub(super) enum Unwatched {
    Captured = 0,
    Refused = 1,
    Busy = 2,
    Early = 3,
}

/// Counts a block that is not watched; each reason is said once.
pub(super) fn unwatched(why: Unwatched) {
    static SAID: [AtomicBool; 4] = [const { AtomicBool::new(false) }; 4];
    SEEN.unwatched.fetch_add(1, Relaxed);
    if !SAID[why as usize].swap(true, Relaxed) {
        let why = match why {
            Unwatched::Captured => "while a stream is being captured, blocks are not watched",
            Unwatched::Refused => {
                "the driver refused a copy that a canary needs: some blocks are not watched"
            }
            Unwatched::Early => {
                "cuMemFree freed blocks of a pool before the host had waited for their stream: they are not looked at"
            }
            Unwatched::Busy => "more blocks were freed than can be looked at at once: some are not watched",
        };
        log::warn!("guard: {why}; `wmctl stats` counts them");
    }
}
