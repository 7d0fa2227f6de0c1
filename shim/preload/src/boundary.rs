//! Where a program's call enters and leaves us.
//!
//! Every hook passes through [`cross`], which holds the rules of an interposer in one place: the call is counted;
//! a call from inside ourselves and any call in a forked child go straight to the driver; a panic stops here and the
//! real call is made instead; `errno` is what the driver left.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use wm_abi::CUresult;

use crate::counters::{Calls, fail_open};
use crate::lifecycle;

/// What a handler says.
pub(crate) enum Answer {
    /// Not ours: make the real call with the same arguments.
    Pass,
    /// This is the result.
    Is(CUresult),
}

impl From<CUresult> for Answer {
    fn from(result: CUresult) -> Self {
        Self::Is(result)
    }
}

impl From<Result<(), CUresult>> for Answer {
    fn from(result: Result<(), CUresult>) -> Self {
        Self::Is(result.into())
    }
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs a handler, or the real call where the handler must not or cannot answer.
pub(crate) fn cross(
    calls: &Calls,
    handler: impl FnOnce() -> Answer,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = match enter(handler) {
        Answer::Is(result) => result,
        Answer::Pass => real(),
    };
    calls.note(result);
    result
}

fn enter(handler: impl FnOnce() -> Answer) -> Answer {
    if INSIDE.get() || lifecycle::forked() {
        return Answer::Pass;
    }
    INSIDE.set(true);
    let answer = keep_errno(|| catch_unwind(AssertUnwindSafe(handler)));
    INSIDE.set(false);
    answer.unwrap_or_else(|_| {
        fail_open("a panic in a hook");
        Answer::Pass
    })
}

/// Runs `body` and leaves the thread's `errno` as it was.
pub(crate) fn keep_errno<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: the address of the calling thread's errno is valid for the thread's life.
    let errno = unsafe { &*libc::__errno_location().cast::<Cell<libc::c_int>>() };
    let before = errno.get();
    let result = body();
    errno.set(before);
    result
}

#[cfg(test)]
mod tests;
