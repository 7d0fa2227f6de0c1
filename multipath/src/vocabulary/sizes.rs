//! Sizes of chunks, slots and shares in bytes, and counts of slots and lanes.
//!
//! Invariant: no chunk is larger than a staging slot.

/// Size of a staging slot, bytes: the largest chunk.
pub const SLOT: usize = 8 << 20;

/// Slots of a pipeline: one fills while the other drains.
pub(crate) const SLOTS: usize = 2;

/// Pipelines through one relay at most: 64 MiB of staging.
pub const LANES: usize = 4;

/// Smallest chunk that is worth its six driver calls, bytes.
pub const SMALLEST_CHUNK: usize = 1 << 20;

/// The chunk at the end of a part where nothing overlaps its second hop, bytes: the last one in,
/// the first one out. A whole slot crosses NVLink in the time of this chunk.
pub const EDGE: usize = 2 << 20;

/// Parts begin and end at multiples of this, bytes.
pub const GRAIN: usize = 64 << 10;

/// Chunk of a pageable copy, bytes: it stays in a core's cache between two passes.
pub(crate) const BOUNCE: usize = 2 << 20;
