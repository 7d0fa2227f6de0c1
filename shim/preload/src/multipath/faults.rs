//! Does the program handle faults of its own memory?
//!
//! Write barriers and software paging protect pages, and map them in a handler of SIGSEGV or
//! SIGBUS. The driver reads and writes pageable memory on the thread that calls it, so the program
//! expects the fault on that thread: its handler may look at the thread, or leave with
//! `siglongjmp`. On a thread of ours the handler would fail. The driver makes such a program's
//! pageable copies.

use std::mem::MaybeUninit;

use libc::{SIG_DFL, SIG_IGN, SIGBUS, SIGSEGV, c_int};

/// Is there a handler of the program for either signal?
pub(super) fn are_served() -> bool {
    [SIGSEGV, SIGBUS].into_iter().any(has_handler)
}

fn has_handler(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: asks only; the system writes the action where it succeeds.
    unsafe {
        let asked = libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        asked != 0 || ![SIG_DFL, SIG_IGN].contains(&action.assume_init().sa_sigaction)
    }
}
