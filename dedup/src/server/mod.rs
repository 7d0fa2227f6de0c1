//! The broker as a process: one thread that waits for all its clients at once.
//!
//! * No client waits for another one: sockets do not block, and each client has one request served
//!   a round. If an answer does not fit into the client's socket, no further request of that client
//!   is read until it does. So a client that does not read, or sends without end, delays itself
//!   alone, and has at most one answer in memory.
//! * A connection ends with the first packet that is not understood; its leases go, and no other
//!   client's.
//! * A silent connection is closed after seconds without a hello.
//! * It ends when no process has shared anything for a while, and when its place is another's and
//!   its clients are gone.
//!
//! [`place`] is the folder in which it listens, [`limits`] the number of clients and chunks that it
//! serves, `connection` one client.

mod accepting;
mod connection;
mod copies;
pub mod limits;
mod lives;
mod peer;
pub mod place;
mod reply;
mod run;
mod service;

pub use peer::{AskPeer, PeerIdentity};
pub use run::{BrokerServer, ServerSettings};
