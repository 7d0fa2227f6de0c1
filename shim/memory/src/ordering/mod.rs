//! Layer 2, ordering: the known progress of the GPU in each stream. Does not know
//! which memory waits for it.

mod clock;
pub(crate) mod fence;
pub(crate) mod results;
pub(crate) mod timeline;
