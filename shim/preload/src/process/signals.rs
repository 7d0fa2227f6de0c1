//! The calling thread's signals wait while it holds a lock or the gate, which their handlers may
//! need.
//!
//! A handler may make driver calls, and it may call `exit`, whose handlers are ours too. On a
//! thread that has closed the gate or holds a lock it would wait for itself.

use libc::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};

/// The signal with the highest number.
const LAST: libc::c_int = 64;

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

    /// Does a signal wait that the thread took before? The program's own blocked ones do not count.
    pub(crate) fn is_any_pending(&self) -> bool {
        // SAFETY: all-zero is valid for the set, and the function fills it.
        let pending = unsafe {
            let mut pending: libc::sigset_t = std::mem::zeroed();
            libc::sigpending(&mut pending);
            pending
        };
        // SAFETY: reads filled sets; a number that is no signal is not in them.
        let has = |set: &libc::sigset_t, signal| unsafe { libc::sigismember(set, signal) == 1 };
        (1..=LAST).any(|signal| has(&pending, signal) && !has(&self.0, signal))
    }
}

impl Drop for SignalsHeld {
    fn drop(&mut self) {
        // SAFETY: the set that was in force before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (latency): a mover does not see the signal that waits for it, or sees one that
    //! waits for the program.
    use libc::{SIG_BLOCK, SIGUSR1, SIGUSR2};

    use super::*;

    fn change(how: libc::c_int, signal: libc::c_int) {
        // SAFETY: acts upon the calling thread's mask.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut set, signal);
            libc::pthread_sigmask(how, &set, std::ptr::null_mut());
        }
    }

    fn send(signal: libc::c_int) {
        // SAFETY: to the calling thread, which blocks it.
        unsafe { libc::pthread_kill(libc::pthread_self(), signal) };
    }

    #[test]
    fn a_signal_that_is_held_here_is_seen_and_one_that_the_program_blocks_is_not() {
        // SAFETY: an ignored signal would not wait, so it has a handler, which does nothing.
        unsafe {
            extern "C" fn nothing(_: libc::c_int) {}
            libc::signal(SIGUSR1, nothing as extern "C" fn(libc::c_int) as libc::sighandler_t);
        }
        change(SIG_BLOCK, SIGUSR2);
        let held = SignalsHeld::begin();
        assert!(!held.is_any_pending());
        send(SIGUSR2);
        assert!(!held.is_any_pending(), "the program holds that one");
        send(SIGUSR1);
        assert!(held.is_any_pending());
        drop(held);
        assert!(!SignalsHeld::begin().is_any_pending(), "it was taken");
    }
}
