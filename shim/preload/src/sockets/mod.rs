//! Local sockets in a process that is not ours: where they are, which users may be at the other end, and how the process is kept
//! from noticing them. For the statistics endpoint and for memory that is shared between processes.
//!
//! * [`private_folder`]: the user's private folder. * [`file`](mod@file): sockets that listen in it. * [`descriptor`]: what is open.

pub(crate) mod descriptor;
pub(crate) mod file;
pub(crate) mod private_folder;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The user at the other end of a connected socket: the kernel says so, not the peer.
///
/// # Errors
/// The system's.
pub(crate) fn peer_user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    // Not by rustix, whose process numbers are never 0: a peer in another namespace of process numbers has that one.
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let place = (&raw mut peer).cast();
    // SAFETY: the option's value is a `ucred`, and its size is given.
    let outcome = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut bytes)
    };
    if outcome == 0 { Ok(peer.uid) } else { Err(io::Error::last_os_error()) }
}

/// Does the peer run as our user or as root?
pub(crate) fn is_trusted(socket: BorrowedFd<'_>) -> bool {
    peer_user(socket).is_ok_and(|user| user == private_folder::user() || user == 0)
}
