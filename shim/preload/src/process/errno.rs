//! The thread's `errno`, which a call that enters us leaves as it was.

use std::cell::Cell;

use libc::c_int;

/// The calling thread's `errno`. Not to be handed to another thread, which a `Cell` cannot be.
pub(crate) fn errno() -> &'static Cell<c_int> {
    // SAFETY: the address of the calling thread's errno is valid for the thread's life, and stays
    // in the thread.
    unsafe { &*libc::__errno_location().cast::<Cell<c_int>>() }
}

/// Runs `body` and leaves the thread's `errno` as it was.
pub(crate) fn preserve_errno<T>(body: impl FnOnce() -> T) -> T {
    preserve_errno_at(errno(), body)
}

/// The same, where the address of `errno` is known already.
#[inline]
pub(crate) fn preserve_errno_at<T>(errno: &Cell<c_int>, body: impl FnOnce() -> T) -> T {
    let before = errno.get();
    let result = body();
    errno.set(before);
    result
}
