//! What a copy may use beside others: links, threads, and contexts on siblings.

pub(crate) mod claims;
pub(crate) mod link_claims;
pub(crate) mod opening;
pub(crate) mod opposing;
pub(crate) mod page;
pub(crate) mod threads;
