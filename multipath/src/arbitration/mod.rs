//! The links, threads, sibling contexts and stream that a copy may use beside other work.
//!
//! Invariants: nothing here calls a driver, and a wrong answer costs speed, never bytes.
//! [`stream_turns`] and [`plain_calls`] are the exceptions: the order of copies depends on them.

pub(crate) mod claims;
pub(crate) mod link_claims;
pub(crate) mod opening;
pub(crate) mod opposing;
pub(crate) mod page;
pub(crate) mod plain_calls;
pub(crate) mod stream_place;
pub(crate) mod stream_turns;
pub(crate) mod threads;
