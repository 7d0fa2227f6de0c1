//! Copies and memory sets: where their ends lie, copies across devices, and ranges that run past the end of a block.

pub(in crate::hooks) mod batch;
pub(in crate::hooks) mod batch_volumes;
pub(in crate::hooks) mod bounds;
pub(in crate::hooks) mod copies;
pub(in crate::hooks) mod crossing;
pub(in crate::hooks) mod cut;
pub(in crate::hooks) mod volume;
