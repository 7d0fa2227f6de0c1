//! Work on the GPU: launches, graphs, loaded code, and the writes of a call.

pub(in crate::hooks) mod code;
mod effects;
pub(in crate::hooks) mod graph;
pub(in crate::hooks) mod graph_uses;
pub(in crate::hooks) mod kept;
pub(in crate::hooks) mod launch;
pub(in crate::hooks) mod made;
pub(in crate::hooks) mod writes;
