//! Hazard (error handling): a handler fails, or meets itself, and the program pays for it.

use std::cell::Cell;

use wm_abi::CUresult;

use super::{Outcome, Pace, enter_hook};
use crate::counters::{COUNTERS, Calls};

fn driver_answers() -> CUresult {
    CUresult::NOT_READY
}

#[test]
fn a_panic_in_a_hook_becomes_the_real_call() {
    let calls = Calls::new();
    for _ in 0..3 {
        let result = enter_hook(&calls, Pace::Usual, || panic!("a handler's bug"), driver_answers);
        assert_eq!(result, CUresult::NOT_READY);
    }
    assert_eq!(COUNTERS.fail_open_reasons().get("a panic in a hook"), Some(&3));
    assert_eq!(calls.read(), (3, 3));
}

#[test]
fn after_a_panic_the_next_call_is_served() {
    let calls = Calls::new();
    assert_eq!(
        enter_hook(&calls, Pace::Usual, || panic!("a handler's bug"), driver_answers),
        CUresult::NOT_READY
    );
    assert_eq!(
        enter_hook(&calls, Pace::Usual, || Outcome::Return(CUresult::SUCCESS), driver_answers),
        CUresult::SUCCESS
    );
}

#[test]
fn a_call_from_inside_a_hook_is_the_drivers() {
    let (calls, inner) = (Calls::new(), Calls::new());
    let result = enter_hook(
        &calls,
        Pace::Usual,
        || {
            Outcome::Return(enter_hook(
                &inner,
                Pace::Frequent,
                || panic!("a hook must not meet itself"),
                driver_answers,
            ))
        },
        || CUresult::UNKNOWN,
    );
    assert_eq!(result, CUresult::NOT_READY);
}

#[test]
fn a_handler_that_passes_leaves_the_real_calls_answer() {
    let real_calls = Cell::new(0);
    let real = || {
        real_calls.set(real_calls.get() + 1);
        driver_answers()
    };
    assert_eq!(enter_hook(&Calls::new(), Pace::Usual, || Outcome::Forward, real), CUresult::NOT_READY);
    assert_eq!(real_calls.get(), 1);
}

#[test]
fn a_handler_that_changes_errno_does_not_show() {
    let errno = || std::io::Error::last_os_error().raw_os_error();
    // SAFETY: closing no descriptor only sets errno.
    unsafe { libc::close(-1) };
    let before = errno();
    let handler = || {
        // SAFETY: an empty name only sets errno, to another value.
        unsafe { libc::unlink(c"".as_ptr()) };
        Outcome::Return(CUresult::SUCCESS)
    };
    assert_eq!(enter_hook(&Calls::new(), Pace::Usual, handler, driver_answers), CUresult::SUCCESS);
    assert_eq!(errno(), before);
}
