//! Messages between a process and the broker: packets on a `SOCK_SEQPACKET` socket.
//!
//! A client says hello, is greeted, and from then on asks; each request has one answer, in order. A
//! client that takes turns reports instead, and gets orders at any time. The copies of kinds 11 to
//! 13 lie in host memory, and are asked for on a connection of their own.
//! Numbers are little-endian. A packet begins with its kind and the number of its entries, four
//! bytes each.
//!
//! | kind | request | its entries | answer | its entries |
//! |---|---|---|---|---|
//! | 1 | hello | magic (8), version (4), role (4); no count | hello | magic (8), version (4), process of the broker (4) |
//! | 2 | offer | whether again (4, after the count), names (32 each), and as many descriptors | offered | leases (8 each); 0: there is one, all ones: full |
//! | 3 | look up | whether again (4, after the count), names | found | leases (8 each); 0: wanted, all ones: full, the highest bit: waiting; a descriptor for each other lease, in order |
//! | 4 | release | leases | released | none; the count is of those that were the client's |
//! | 5 | report | | report | see [`BrokerReport`] |
//! | 6 | | | refused | no more clients are taken |
//! | 7 | note | whether instead of earlier ones (4, after the count), names | noted | how many there are of each (4 bytes each) |
//! | 8 | turn | phase (4, after the count), numbers and times, and the bytes of each GPU | turn | task (4, after the count), number (8), and what the task says |
//! | 9 | arrivals | | arrived | names that the client waits for, and that were offered since |
//! | 10 | take back | | taken back | leases (8 each) of chunks that no other process maps, which are over |
//! | 11 | find copies | names of copies (24 each) | copies found | how many segments are new (4, after the count); for each name its segment (8; 0: there is none) and its offset (8); the new segments (8 each), and a descriptor of each, in order |
//! | 12 | offer copies | names of copies (24 each) with their offsets (8 each), and one descriptor | copies offered | the segment (8, after the count; 0: it is not held); whether each name is accepted (4 each) |
//! | 13 | release copies | segments (8 each) | copies released | none; the count is of those that the client used |
//!
//! The packets of kind 1 are the same in all versions; a process that hears another version than
//! its own ends the connection. Every length is checked before it is believed. A packet that is not
//! in the table ends the connection that it came by.

use std::io::{ErrorKind, Result};
use std::os::fd::BorrowedFd;

use wm_sockets::packet;

mod answer;
mod bytes;
mod copies;
mod report;
mod request;
mod sizes;
mod turn;

pub use answer::{BrokerAnswer, LookedUp, Offered};
pub use bytes::Malformed;
pub use report::{BrokerReport, ClientReport, DeviceReport};
pub use request::{BrokerRequest, Role};
pub use sizes::{BATCH, COPIES, LONGEST, NOTES, RELEASES, REPORTED, SOCKET, VERSION};
pub use wm_sockets::packet::ReceivedPacket;

/// Sends a packet with its descriptors, at most [`BATCH`].
///
/// # Errors
/// The system's; `WouldBlock` if the socket does not block and is full.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    if descriptors.len() > BATCH {
        return Err(ErrorKind::InvalidInput.into());
    }
    packet::send(socket, bytes, descriptors).map(drop)
}

/// Receives a packet of at most [`LONGEST`] bytes and [`BATCH`] descriptors.
///
/// # Errors
/// The system's; `UnexpectedEof` if the peer is gone, `InvalidData` for a longer packet.
pub fn receive(socket: BorrowedFd<'_>) -> Result<ReceivedPacket> {
    packet::receive(socket, LONGEST, BATCH)
}
