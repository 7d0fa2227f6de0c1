//! A call of the driver is not interrupted: a cancelled thread ends before it or after it. A forced
//! unwind through these frames would end the process.

use std::ffi::c_int;

unsafe extern "C" {
    /// A function of the C library, for the calling thread; a state is 0 (enabled) or 1 (disabled).
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// While this lives, the thread cannot be cancelled.
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
        // SAFETY: the function accepts a null out-pointer.
        unsafe { pthread_setcancelstate(self.0, std::ptr::null_mut()) };
    }
}
