//! Has the process forked, does it exit, has it used CUDA, is the library detached from it?
//!
//! After a fork the child makes real calls only: the driver does not survive a fork, and our locks
//! may have been held by threads that are no more. Once exit has begun, we make no driver call of
//! our own: the driver may be gone before us.
//!
//! Written by the handlers of `entry/lifecycle.rs`, and by `control`.

use std::sync::atomic::Ordering;

use super::hot::PROCESS_HOT;

/// Is this the child of a process that had used CUDA?
#[inline]
pub(crate) fn forked() -> bool {
    PROCESS_HOT.forked.load(Ordering::Relaxed)
}

/// Has the process begun to exit?
#[inline]
pub(crate) fn exiting() -> bool {
    PROCESS_HOT.exiting.load(Ordering::Relaxed)
}

/// The first CUDA call of the process is being made.
pub(crate) fn record_first_call() {
    PROCESS_HOT.calls_cuda.store(true, Ordering::Relaxed);
}

/// This is a forked child. `false` if its parent had not used CUDA: then it is an ordinary process,
/// and may use CUDA, and us. Async-signal-safe.
pub(crate) fn record_fork() -> bool {
    let used = PROCESS_HOT.calls_cuda.load(Ordering::Relaxed);
    if used {
        PROCESS_HOT.forked.store(true, Ordering::Relaxed);
    }
    used
}

/// Exit has begun. `false`: that is known already.
pub(crate) fn record_exit() -> bool {
    !PROCESS_HOT.exiting.swap(true, Ordering::Relaxed)
}

/// Does the library serve no new memory of this process?
#[inline]
pub(crate) fn detached() -> bool {
    PROCESS_HOT.detached.load(Ordering::Relaxed)
}

/// An operator, or the program, has turned the library's features off or on.
pub(crate) fn set_detached(is_detached: bool) {
    PROCESS_HOT.detached.store(is_detached, Ordering::Relaxed);
}
