//! Layer 2, books: what is where. Each file keeps one index consistent, and knows nothing of why it
//! changes.

pub(crate) mod blocks;
pub(crate) mod directory;
pub(crate) mod free_cache;
pub(crate) mod holdings;
pub(crate) mod ledger;
pub(crate) mod program;
