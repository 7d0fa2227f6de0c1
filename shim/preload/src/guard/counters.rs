//! Counts of overruns that canaries saw, and of the blocks that they could not watch. Each reason
//! for the latter is logged once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Counters of one process's canaries. A new counter is a field here and a line in
/// `Guard::statistics`.
#[derive(Debug, Default)]
pub(super) struct CanaryCounters {
    /// Blocks that got a canary.
    pub(super) guarded: AtomicU64,
    /// Comparisons of a tail with the pattern.
    pub(super) looks: AtomicU64,
    /// Blocks whose tail was overwritten.
    pub(super) overrun: AtomicU64,
    /// Blocks without a canary, and blocks that were freed without a check.
    pub(super) unwatched: AtomicU64,
    /// Reasons that were logged, by [`Unwatched`].
    logged: [AtomicBool; 4],
}

/// Why a block has no canary, or was not checked when it was freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unwatched {
    #[error("while a stream is being captured, blocks are not watched")]
    Captured = 0,
    #[error("the driver refused a copy that a canary needs: some blocks are not watched")]
    Refused = 1,
    #[error("more blocks were freed than can be looked at at once: some are not watched")]
    Busy = 2,
    #[error(
        "cuMemFree freed blocks of a pool before the host had waited for their stream: they are not looked at"
    )]
    Early = 3,
}

impl CanaryCounters {
    pub(super) const fn new() -> Self {
        Self {
            guarded: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            overrun: AtomicU64::new(0),
            unwatched: AtomicU64::new(0),
            logged: [const { AtomicBool::new(false) }; 4],
        }
    }

    /// Counts a block that is not watched.
    pub(super) fn count_unwatched(&self, why: Unwatched) {
        self.unwatched.fetch_add(1, Relaxed);
        if !self.logged[why as usize].swap(true, Relaxed) {
            log::warn!("guard: {why}; `wmctl stats` counts them");
        }
    }
}
