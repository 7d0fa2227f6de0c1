//! The other end of a socket, as the kernel says and not the peer.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::user;

/// The process that connected, or listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerIdentity {
    /// Its process when it connected; 0 if it has no number in this namespace.
    pub process: u32,
    /// Its effective user.
    pub user: u32,
}

/// Asks the kernel.
///
/// # Errors
/// The system's.
pub fn identity(socket: BorrowedFd<'_>) -> io::Result<PeerIdentity> {
    // Not by rustix, whose process numbers are never 0: a peer in another namespace of process
    // numbers has that one.
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let place = (&raw mut peer).cast();
    // SAFETY: the option's value is a `ucred`, and its size is given.
    let outcome = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut bytes)
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(PeerIdentity { process: peer.pid as u32, user: peer.uid })
}

/// Does the peer run as this process's user, or as root?
pub fn is_trusted(socket: BorrowedFd<'_>) -> bool {
    identity(socket).is_ok_and(|peer| is_trusted_user(peer.user))
}

/// Could the peer be a process of this user, or of root? For peers that then prove more than their
/// user, such as the possession of a key.
pub fn may_be_own(socket: BorrowedFd<'_>) -> bool {
    identity(socket).is_ok_and(|peer| peer.user == user::effective() || peer.user == 0)
}

/// May a user's processes be trusted? If several users appear under this process's own number, it
/// trusts no process by number.
pub fn is_trusted_user(user: u32) -> bool {
    user::own().is_some_and(|own| user == own || user == 0)
}
