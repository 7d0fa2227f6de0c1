//! Layer 1, containers: a hash table that knows nothing of memory.

pub(crate) mod table;
