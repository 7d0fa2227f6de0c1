//! Layer 2, books: what is where. Every file keeps one index true; none knows why it is changed.

pub(crate) mod blocks;
pub(crate) mod directory;
pub(crate) mod free_cache;
pub(crate) mod holdings;
pub(crate) mod ledger;
pub(crate) mod program;
