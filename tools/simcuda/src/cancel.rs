//! A call of the driver's is whole: a thread that is to be cancelled ends before it or after it. A
//! forced unwind through these frames would end the process.

use std::ffi::c_int;

unsafe extern "C" {
    /// Of the C library, for the calling thread; a state is 0 (enabled) or 1 (disabled).
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// While it lives the thread cannot be cancelled.
pub(crate) struct Uncancelled(c_int);

impl Uncancelled {
    pub(crate) fn begin() -> Self {
        let mut before = 0;
        // SAFETY: the out-pointer is to a live local.
        unsafe { pthread_setcancelstate(1, &mut before) };
        Self(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: no out-pointer is wanted.
        unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
    }
}
