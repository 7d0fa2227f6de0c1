//! The two system calls of the broker that no safe wrapper makes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use wm_dedup::server::PeerIdentity;

/// Numbers that are tried one by one, where the kernel does not close a range.
const TRIED: u64 = 1 << 16;

/// Closes whatever else whoever started this process had open: a daemon that keeps a pipe keeps its reader waiting.
pub(super) fn close_inherited() {
    // SAFETY: called first of all in `main`, when nothing in this process owns a descriptor beyond the standard three.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) } == 0 {
        return;
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    for number in 3..limit.unwrap_or(TRIED).min(TRIED) as i32 {
        // SAFETY: as above; of a number that is not open nothing comes but an error.
        unsafe { libc::close(number) };
    }
}

/// The process and the user at the other end of a connected socket.
pub(super) fn ask_peer(socket: BorrowedFd<'_>) -> io::Result<PeerIdentity> {
    // Not by rustix, whose process numbers are never 0: a peer in another namespace of process numbers has that one.
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
