//! What a copy may use beside others: links, threads, and contexts on siblings.
//!
//! Invariants: nothing here calls a driver, and a wrong answer costs speed, never bytes.

pub(crate) mod claims;
pub(crate) mod link_claims;
pub(crate) mod opening;
pub(crate) mod opposing;
pub(crate) mod page;
pub(crate) mod threads;
