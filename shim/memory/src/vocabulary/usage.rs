//! What the manager tells about itself: for the statistics endpoint, for tools and for the line that an
//! out-of-memory error prints.

use serde::Serialize;

use crate::vocabulary::tiers::TierBytes;

/// One GPU's memory, as its manager sees it. Sizes are bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Usage {
    /// In blocks the program holds, each rounded up to 512 bytes.
    pub live: TierBytes,
    /// Highest `live` since the start or the last reset.
    pub live_peak: TierBytes,
    /// Bytes that were asked for by the live blocks of streams, not rounded: what a stream-ordered pool calls used.
    pub pooled: u64,
    /// Highest `pooled` since the start or the last reset.
    pub pooled_peak: u64,
    /// Physical memory held, used or not.
    pub reserved: TierBytes,
    /// Highest `reserved` since the start or the last reset.
    pub reserved_peak: TierBytes,
    /// Freed, and kept whole for the next request of the same size and stream.
    pub cached: u64,
    /// Longest stretch of free addresses that is backed now.
    pub largest_free_run: u64,
    /// Physical memory without a block, in whole handles: what stitching can draw on.
    pub idle: TierBytes,
    /// `live` over `reserved`, 0 where nothing is reserved.
    pub utilization: f64,
    /// Extents, stitched ones included.
    pub extents: usize,
    /// Stitched extents that no block lies in.
    pub idle_views: usize,
    /// Driver objects that could not be given back and are held for another try.
    pub quarantined: usize,
    /// What happened so far.
    pub counters: Counters,
}

/// Events since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Blocks handed out.
    pub allocations: u64,
    /// Blocks taken back.
    pub frees: u64,
    /// Allocations answered by the free cache.
    pub hits: u64,
    /// Allocations cut from a free run.
    pub splits: u64,
    /// Allocations in an extent that was mapped before, whose handles had to be claimed back.
    pub reuses: u64,
    /// Allocations in an extent made from free handles, or free and new ones.
    pub stitches: u64,
    /// Allocations in an extent made from what was free at the ends of handles.
    pub joints: u64,
    /// Handles made.
    pub creates: u64,
    /// Allocations with a part that is not on the device.
    pub overflows: u64,
    /// Times a stream was made to wait, on the GPU, for another's event.
    pub orders: u64,
    /// Times a thread waited for the GPU.
    pub waits: u64,
    /// Stitched extents unmapped because too many were idle.
    pub evictions: u64,
    /// Plans undone because a driver call failed.
    pub rollbacks: u64,
    /// Handles given back to the driver.
    pub releases: u64,
    /// Steps of giving back that were put off: the driver refused, or another thread is about to unmap something there.
    pub failed_releases: u64,
    /// Allocations refused.
    pub out_of_memory: u64,
}

/// One block the program holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlockReport {
    /// First address.
    pub address: u64,
    /// Size the program asked for.
    pub bytes: usize,
    /// Unique in the process.
    pub id: u64,
    /// The stream it was allocated in, by the manager's number; absent for `cuMemAlloc`.
    pub stream: Option<u64>,
    /// Where its bytes are.
    pub tiers: TierBytes,
}
