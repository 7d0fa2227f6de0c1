//! The links, threads, sibling contexts and stream that a copy may use beside other work.
//!
//! Invariants: nothing here calls a driver, and a wrong answer costs speed, never bytes.
//! [`stream_turns`] is the exception: the order of copies depends on it.

pub(crate) mod claims;
pub(crate) mod link_claims;
pub(crate) mod opening;
pub(crate) mod opposing;
pub(crate) mod page;
pub(crate) mod stream_turns;
pub(crate) mod threads;
