//! The other end of a socket, as the kernel says and not the peer.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

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

/// `SO_PEERPIDFD`, of Linux 6.5.
const PEER_LIFE: libc::c_int = 77;

/// A descriptor that becomes readable when the peer's process ends. `None` where the kernel gives
/// none.
pub fn life(socket: BorrowedFd<'_>) -> Option<OwnedFd> {
    let mut life: libc::c_int = -1;
    let mut bytes = size_of::<libc::c_int>() as libc::socklen_t;
    let place = (&raw mut life).cast();
    // SAFETY: the option's value is a `c_int`, and its size is given.
    let outcome =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, PEER_LIFE, place, &raw mut bytes) };
    if outcome == 0 && life >= 0 {
        // SAFETY: the kernel has opened it for this call.
        return Some(unsafe { OwnedFd::from_raw_fd(life) });
    }
    // An older kernel: the process is found by its number, which is its own while it holds the
    // other end of the socket.
    let process = identity(socket).ok().filter(|peer| peer.process > 0)?.process;
    // SAFETY: the call has two numbers as arguments.
    let life = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(process), 0) };
    let life = libc::c_int::try_from(life).ok().filter(|life| *life >= 0)?;
    // SAFETY: the kernel has opened it for this call; such descriptors close on exec.
    Some(unsafe { OwnedFd::from_raw_fd(life) })
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
