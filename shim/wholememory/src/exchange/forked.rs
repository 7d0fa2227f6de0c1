//! A forked child lets go of the ranks' sockets.
//!
//! A child that keeps them would keep the names and the connections of a rank that has ended. All
//! of them are descriptors of [`wm_sockets::descriptor`]: the child closes those that still are
//! ours, and leaves those that the program has opened under a number that it took from us.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Once;

use wm_sockets::descriptor::{self, Descriptor};

/// A descriptor that a child of a fork closes.
///
/// # Errors
/// The system's.
pub(super) fn closed_in_child(descriptor: impl Into<OwnedFd>) -> io::Result<Descriptor> {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // SAFETY: the handler stays valid, because a library with this code is never unloaded. If
        // the call fails, children keep descriptors open, as without it.
        let _error = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    Descriptor::adopt(descriptor.into())
}

extern "C" fn in_child() {
    descriptor::close_all();
}

#[cfg(test)]
/// Whether a child of a fork finds that.
fn in_a_child(finds: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child makes calls that are safe after a fork, and does not return.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(!finds())) };
    }
    let mut status = -1;
    // SAFETY: a child of ours, and a live local.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(waited, child);
    status == 0
}

/// Does a child of a fork have this descriptor?
#[cfg(test)]
pub(super) fn is_open_in_child(descriptor: std::os::fd::BorrowedFd<'_>) -> bool {
    let file = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&descriptor));
    in_a_child(|| rustix::fs::readlink(&file, Vec::new()).is_ok())
}

#[cfg(test)]
mod tests {
    //! Hazard (process lifecycle): a fork closes a file of the program's.
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_child_has_no_socket_of_ours_and_all_files_of_the_program() {
        let (one, other) = UnixStream::pair().expect("sockets");
        let (one, taken) = (closed_in_child(one).expect("a slot"), closed_in_child(other).expect("a slot"));
        let number = taken.get().expect("open").as_raw_fd();
        let program = std::fs::File::open("/proc/self/exe").expect("open");
        let file = |fd: i32| rustix::fs::readlink(format!("/proc/self/fd/{fd}"), Vec::new());
        let wanted = file(program.as_raw_fd()).expect("a link");
        // SAFETY: the program closes a number that it never opened, and has its own file there.
        assert_eq!(unsafe { libc::dup2(program.as_fd().as_raw_fd(), number) }, number);
        let own = one.get().expect("open").as_raw_fd();
        assert!(in_a_child(|| file(number).is_ok_and(|found| found == wanted)), "the program's file is gone");
        assert!(in_a_child(|| file(own).is_err()), "a socket of ours is open");
        assert!(file(own).is_ok(), "the parent's socket is open");
    }
}
