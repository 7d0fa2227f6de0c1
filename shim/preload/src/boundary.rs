//! Where a program's call enters and leaves us.
//!
//! Every hook passes through [`cross`], which holds the rules of an interposer in one place: the call is counted;
//! a call from inside ourselves and any call in a forked child go straight to the driver; a panic stops here and the
//! real call is made instead; `errno` is what the driver left; a thread is not cancelled inside. Calls that are frequent and mostly
//! answered from memory see to that last rule where they leave memory: in driver calls, the log, the trace.

use std::any::Any;
use std::cell::Cell;
use std::hint::cold_path;
use std::panic::{AssertUnwindSafe, catch_unwind};

use wm_abi::CUresult;
use wm_driver::thread::Uncancelled;

use crate::counters::{Calls, fail_open};
use crate::glance::{self, MINE};
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

/// How often a program makes a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// So often that ten nanoseconds count.
    Frequent,
    Usual,
}

/// Runs a handler, or the real call where the handler must not or cannot answer.
#[inline]
pub(crate) fn cross(
    calls: &Calls,
    pace: Pace,
    handler: impl FnOnce() -> Answer,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = match enter(pace, handler) {
        Answer::Is(result) => result,
        Answer::Pass => {
            // Where the driver serves the call, a jump more does not count.
            cold_path();
            real()
        }
    };
    calls.note(result);
    result
}

#[inline]
fn enter(pace: Pace, handler: impl FnOnce() -> Answer) -> Answer {
    MINE.with(|mine| {
        if mine.inside.get() || lifecycle::forked() {
            return Answer::Pass;
        }
        mine.inside.set(true);
        let _whole = (pace == Pace::Usual).then(Uncancelled::new);
        let answer = kept(mine.errno(), || catch_unwind(AssertUnwindSafe(handler)));
        mine.inside.set(false);
        answer.unwrap_or_else(panicked)
    })
}

#[cold]
#[inline(never)]
fn panicked(_: Box<dyn Any + Send>) -> Answer {
    fail_open("a panic in a hook");
    Answer::Pass
}

/// Runs `body` and leaves the thread's `errno` as it was.
pub(crate) fn keep_errno<T>(body: impl FnOnce() -> T) -> T {
    kept(glance::errno(), body)
}

#[inline]
fn kept<T>(errno: &Cell<libc::c_int>, body: impl FnOnce() -> T) -> T {
    let before = errno.get();
    let result = body();
    errno.set(before);
    result
}

#[cfg(test)]
mod tests;
