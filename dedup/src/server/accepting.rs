//! One new connection, and whether it may have one.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt};

use super::peer::{AskPeer, PeerIdentity, is_trusted};
use crate::protocol::{self, BrokerAnswer};

/// Bytes under way to one client: a packet of answers and some descriptors, not thousands of them.
const SEND_BUFFER: usize = 32 << 10;

/// A new connection and its peer.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A peer that may be served.
    Trusted(OwnedFd, PeerIdentity),
    /// Another user's process, whose connection is closed.
    Foreign,
    /// No connection waits.
    Empty,
    /// The system has no room.
    Failed(Errno),
}

/// Takes the next connection.
pub(super) fn accept_one(listener: &OwnedFd, user: u32, ask_peer: AskPeer) -> Arrival {
    let socket = match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(socket) => socket,
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Arrival::Empty,
        Err(error) => return Arrival::Failed(error),
    };
    match ask_peer(socket.as_fd()) {
        Ok(peer) if is_trusted(peer.user, user) => prepared(socket, peer),
        Ok(peer) => {
            log::warn!("rejected connection from process {}: user {} is not ours", peer.process, peer.user);
            Arrival::Foreign
        }
        Err(_) => Arrival::Foreign,
    }
}

fn prepared(socket: OwnedFd, peer: PeerIdentity) -> Arrival {
    match sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER) {
        Ok(()) => Arrival::Trusted(socket, peer),
        Err(error) => Arrival::Failed(error),
    }
}

/// Tells the peer that there are too many clients.
pub(super) fn refuse(socket: &OwnedFd) {
    let _ = protocol::send(socket.as_fd(), &BrokerAnswer::Refused.encode(), &[]);
}
