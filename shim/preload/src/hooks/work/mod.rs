//! Work on the GPU: launches, graphs, loaded code, and what a call writes.

pub(in crate::hooks) mod code;
pub(in crate::hooks) mod graph;
pub(in crate::hooks) mod launch;
pub(in crate::hooks) mod write_kinds;
pub(in crate::hooks) mod writes;
