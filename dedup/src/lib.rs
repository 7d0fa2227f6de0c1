//! The same bytes are stored once on a GPU: the rules, the broker and its clients, without a
//! driver.
//!
//! | module | one idea |
//! |---|---|
//! | [`chunk`] | the unit that is shared, and its name |
//! | [`fingerprint`] | the function that names a chunk, as the GPU computes it |
//! | [`candidates`] | which chunks of a block arrived by copies |
//! | [`readers`] | which parameters of which kernels only read |
//! | [`policy`] | the rules of one process: which blocks are shared, and when |
//! | [`cache`] | the verdicts that the user's processes keep for each other |
//! | [`broker`] | the holders of each chunk and of copies in host memory, as state machines |
//! | [`turns`] | which process gives way when a GPU is too small for two: a state machine, too |
//! | [`protocol`] | the packets between processes and the broker |
//! | [`client`] | a process as the broker's client: leases, one connection, its errors |
//! | [`server`] | the broker as a process: sockets, descriptors, its place in the user's folder |

#![forbid(unsafe_code)]

pub mod broker;
pub mod cache;
pub mod candidates;
pub mod chunk;
pub mod client;
pub mod fingerprint;
pub mod policy;
pub mod protocol;
pub mod readers;
pub mod server;
pub mod turns;
