//! The same bytes are stored once on a GPU: what decides, without a driver.
//!
//! | module | one idea |
//! |---|---|
//! | [`chunk`] | the unit that is shared, and its name |
//! | [`broker`] | who holds which chunk, as a state machine |
//! | [`protocol`] | what processes and the broker say to each other |
//! | [`server`] | the broker as a process: sockets, descriptors, its place in the user's folder |

#![forbid(unsafe_code)]

pub mod broker;
pub mod chunk;
pub mod protocol;
pub mod server;
