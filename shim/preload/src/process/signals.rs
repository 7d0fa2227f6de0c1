//! The calling thread's signals wait while it holds a lock or the gate, which their handlers may
//! need.
//!
//! A handler may make driver calls, and it may call `exit`, whose handlers are ours too. On a
//! thread that has closed the gate or holds a lock it would wait for itself.

use libc::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};

/// Signals are blocked until this is dropped, except those that report the thread's own faults.
/// Made before a lock that a handler may need is taken, and dropped after its release.
pub(crate) struct SignalsHeld(libc::sigset_t);

impl SignalsHeld {
    pub(crate) fn begin() -> Self {
        // SAFETY: all-zero is valid for both sets, and the functions fill them.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
                (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut all);
            for fault in [SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS] {
                libc::sigdelset(&mut all, fault);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
            Self(before)
        }
    }
}

impl Drop for SignalsHeld {
    fn drop(&mut self) {
        // SAFETY: the set that was in force before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}
