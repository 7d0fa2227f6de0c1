//! Local sockets in a process that is somebody else's: where they are, who may be at the other end, and that the process
//! does not notice them. For the statistics endpoint and for memory that is shared between processes.
//!
//! * [`place`]: the user's private folder. * [`file`](mod@file): sockets that listen in it. * [`descriptor`]: what is open.

pub(crate) mod descriptor;
pub(crate) mod file;
pub(crate) mod place;

use std::os::fd::BorrowedFd;

use rustix::net::sockopt::socket_peercred;

/// The user at the other end of a connected socket: the kernel says so, not the peer.
pub(crate) fn peer_user(socket: BorrowedFd<'_>) -> rustix::io::Result<u32> {
    Ok(socket_peercred(socket)?.uid.as_raw())
}

/// Does the peer run as our user or as root?
pub(crate) fn is_trusted(socket: BorrowedFd<'_>) -> bool {
    peer_user(socket).is_ok_and(|user| user == place::user() || user == 0)
}
