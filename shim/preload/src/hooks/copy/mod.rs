//! Copies and memory sets: ranges that run past the end of a block, copies across devices, and
//! copies over several links.

pub(in crate::hooks) mod batch;
mod batch_arguments;
pub(in crate::hooks) mod batch_volumes;
pub(in crate::hooks) mod bounds;
pub(in crate::hooks) mod cut;
pub(in crate::hooks) mod linear;
pub(in crate::hooks) mod peer_calls;
pub(in crate::hooks) mod peer_copy;
pub(in crate::hooks) mod shaped;
mod touching_rows;
pub(in crate::hooks) mod volume;
