//! Sizes that chunks, slots and shares are cut by. Bytes, and counts of what holds them.
//!
//! Invariant: no chunk is larger than a staging slot.

/// Size of a staging slot, bytes: the largest chunk.
pub const SLOT: usize = 8 << 20;

/// Slots of a pipeline: one fills while the other drains.
pub(crate) const SLOTS: usize = 2;

/// Pipelines through one relay at most: 64 MiB of staging.
pub const LANES: usize = 4;

/// Smallest chunk that is worth the six driver calls it takes, bytes.
pub const SMALLEST_CHUNK: usize = 1 << 20;

/// A part's chunk at the end where nothing overlaps its second hop, bytes: the last one in, the
/// first one out. Long enough for a whole slot to cross NVLink meanwhile.
pub const EDGE: usize = 2 << 20;

/// Parts begin and end at multiples of this, bytes.
pub const GRAIN: usize = 64 << 10;

/// Chunk of a pageable copy, bytes: as much as stays in a core's cache between two passes.
pub(crate) const BOUNCE: usize = 2 << 20;
