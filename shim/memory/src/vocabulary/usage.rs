//! The manager's report about itself: for the statistics endpoint, for tools and for the line that
//! an out-of-memory error prints.

use serde::Serialize;
use wm_schema::Counters;

use crate::vocabulary::moves::Moves;
use crate::vocabulary::piece::PieceAccount;
use crate::vocabulary::tiers::{Peaks, TierBytes};

/// One GPU's memory, as its manager sees it. Sizes are bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Usage {
    /// In blocks the program holds, each rounded up to 512 bytes.
    pub live: TierBytes,
    /// Highest `live` since the start or the last reset.
    pub live_peak: TierBytes,
    /// Highest `live` since the start: a reset does not change it. Not part of the manager's
    /// statistics.
    #[serde(skip)]
    pub live_peaks: Peaks,
    /// In memory that the program made itself. Not part of the manager's statistics.
    #[serde(skip)]
    pub pieces: PieceAccount,
    /// Blocks and that memory together. Not part of the manager's statistics.
    #[serde(skip)]
    pub together: Together,
    /// Bytes that were asked for by the live blocks of streams, not rounded: the bytes that a
    /// stream-ordered pool calls used.
    pub pooled: u64,
    /// Highest `pooled` since the start or the last reset.
    pub pooled_peak: u64,
    /// Physical memory held, used or not.
    pub reserved: TierBytes,
    /// Highest `reserved` since the start or the last reset.
    pub reserved_peak: TierBytes,
    /// Freed, and kept whole for the next request of the same size and stream.
    pub cached: u64,
    /// Longest free run.
    pub largest_free_run: u64,
    /// Physical memory without a block, in whole handles: the memory that stitching can draw on.
    pub idle: TierBytes,
    /// `live` without the shared bytes, over `reserved`. 0 if nothing is reserved.
    pub utilization: f64,
    /// In live blocks, and in memory that other processes use too: part of `live`, and of nothing
    /// else. Not part of the manager's statistics.
    #[serde(skip)]
    pub shared: u64,
    /// As `shared`, of blocks that were freed: its addresses are used for nothing until it is given
    /// up. Part of nothing else.
    #[serde(skip)]
    pub parked: u64,
    /// Extents, stitched ones included.
    pub extents: usize,
    /// Stitched extents that no block lies in.
    pub idle_views: usize,
    /// Driver objects that could not be given back and are held for another try.
    pub quarantined: usize,
    /// Bytes that moved between tiers. Not part of the statistics.
    #[serde(skip)]
    pub moves: Moves,
    /// Counts of events so far.
    pub counters: Counters,
}

/// Blocks and the memory that the program made itself, together. Peaks are since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Together {
    /// Held by the program.
    pub live: TierBytes,
    /// Highest `live`.
    pub live_peaks: Peaks,
    /// Physical memory held, used or not.
    pub reserved: TierBytes,
    /// Highest `reserved`.
    pub reserved_peaks: Peaks,
}

impl Together {
    /// The same as the statistics have it.
    #[must_use]
    pub fn tiers(&self) -> wm_schema::Tiers {
        let tier = |of: fn(&TierBytes) -> u64| wm_schema::TierUsage {
            live_bytes: of(&self.live),
            reserved_bytes: of(&self.reserved),
            peak_live_bytes: of(&self.live_peaks.tiers),
            peak_reserved_bytes: of(&self.reserved_peaks.tiers),
        };
        wm_schema::Tiers {
            device: tier(|bytes| bytes.device),
            peer: tier(|bytes| bytes.peer),
            host: tier(|bytes| bytes.host),
        }
    }
}
