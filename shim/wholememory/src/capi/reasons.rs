//! Why a call failed, in words, for callers that show it themselves: the C API gives a code alone.
//!
//! Each thread has its own reason. An addition to the API: programs that do not know of it find it
//! on standard error.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use super::exports::exports;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps a reason until the thread's next one.
pub(super) fn record(reason: &str) {
    let text = CString::new(reason.replace('\0', " ")).unwrap_or_default();
    // A thread that ends has no reason to keep.
    let _told = LAST.try_with(|last| last.replace(text));
}

exports! {
    // wholememory.h: The library.
    // wholememory.h: The library.
    // wholememory.h: The library.
    /// Returns why this thread's last call that failed did so, and an empty text before the first
    /// one. The text stays until the thread's next call that fails. libwholegraph does not have
    /// this function.
    ///
    /// * On failure: it does not fail.
    fn wholememory_get_last_error_message() -> *const c_char {
        LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a caller shows the reason of another thread, or of an older call.
    use std::ffi::CStr;

    use super::*;
    use crate::capi::call::answer;
    use crate::capi::communicators;
    use crate::error::Error;

    fn reason() -> String {
        // SAFETY: a text that this thread keeps.
        unsafe { CStr::from_ptr(wholememory_get_last_error_message()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn a_thread_has_the_reason_of_its_own_last_failure() {
        assert_eq!(reason(), "");
        answer("first", || Err(Error::Logic("one\0two".to_owned())));
        assert_eq!(reason(), "logic: one two");
        answer("second", || Ok(()));
        assert_eq!(reason(), "logic: one two");
        std::thread::spawn(|| assert_eq!(reason(), "")).join().expect("no reason there");
        // SAFETY: null is refused.
        unsafe { communicators::wholememory_create_unique_id(std::ptr::null_mut()) };
        assert!(reason().contains("null"), "{}", reason());
    }
}
