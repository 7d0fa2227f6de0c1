//! Layer 2, ordering: what is known about the GPU's progress in each stream. Does not know what
//! memory waits for it.

mod clock;
pub(crate) mod fence;
pub(crate) mod results;
pub(crate) mod timeline;
