//! Layer 1, containers: hash tables that know nothing of memory.

pub(crate) mod fast_map;
pub(crate) mod table;
