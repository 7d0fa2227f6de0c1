//! Layer 2, books: the place of each block and handle. Each file keeps one index consistent, and
//! does not know why it changes.

pub(crate) mod adopted;
pub(crate) mod black_box;
pub(crate) mod blocks;
pub(crate) mod directory;
pub(crate) mod free_cache;
pub(crate) mod holdings;
pub(crate) mod ledger;
pub(crate) mod program;
pub(crate) mod staying;
pub(crate) mod unified;
