//! Sharing of equal memory between processes: this process's side of the broker.
//!
//! [`client`] keeps the leases and speaks with the broker, [`home`] says where that is, `link` is one connection, `start` starts a
//! broker unseen by the program. All of it is for one background thread: calls wait for the broker, but for a second at most.

#![allow(dead_code, reason = "what shares is wired separately; tests use it meanwhile")]

pub(crate) mod client;
pub(crate) mod home;
mod link;
pub(crate) mod program;
mod start;
#[cfg(test)]
mod tests;
