//! The rules that hold for every call of the program that enters a hook.
//!
//! [`enter_hook`] keeps them in one place:
//! * The call is counted by its result.
//! * A call that comes from inside a handler, and any call in a forked child, goes straight to the
//!   driver.
//! * A panic of a handler stops here, and the real call is made instead.
//! * `errno` is the same afterwards.
//! * The thread is not cancelled inside. The frequent calls, which memory answers for the most
//!   part, leave this rule to the code that they reach when memory does not answer: a miss, driver
//!   calls, the log, the trace.

use std::any::Any;
use std::hint::cold_path;
use std::panic::{AssertUnwindSafe, catch_unwind};

use wm_abi::CUresult;
use wm_driver::thread::Uncancelled;

use crate::counters::{COUNTERS, Calls};
use crate::process::{self, THREAD_HOT, preserve_errno, preserve_errno_at, sticky_error};
use crate::subsystems::PROCESS;

/// The decision of a handler.
pub(in crate::hooks) enum Outcome {
    /// The call is the driver's: make the real one, with the same arguments.
    Forward,
    /// The program gets this result.
    Return(CUresult),
}

impl From<CUresult> for Outcome {
    fn from(result: CUresult) -> Self {
        Self::Return(result)
    }
}

impl From<Result<(), CUresult>> for Outcome {
    fn from(result: Result<(), CUresult>) -> Self {
        Self::Return(result.into())
    }
}

/// How often a program makes a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::hooks) enum Pace {
    /// So often that ten nanoseconds count.
    Frequent,
    Usual,
}

/// Runs a handler, and makes the real call if the handler forwards, panics, or must not run.
#[inline]
pub(in crate::hooks) fn enter_hook(
    calls: &Calls,
    pace: Pace,
    handler: impl FnOnce() -> Outcome,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = match enter(pace, handler) {
        Outcome::Return(result) => result,
        Outcome::Forward => {
            // Keeps the way of a hit straight: a driver call costs more than the jump.
            cold_path();
            real()
        }
    };
    count(calls, result);
    result
}

/// Runs code that reads a call and changes nothing, under the rules of a handler. Other code makes
/// the call itself.
#[inline]
pub(in crate::hooks) fn observe(observer: impl FnOnce()) {
    enter(Pace::Usual, || {
        observer();
        Outcome::Forward
    });
}

/// As [`observe`], for a call that is so frequent that ten nanoseconds count. The thread may be
/// cancelled in it: code that it reaches and that may block keeps this off by itself.
#[inline]
pub(in crate::hooks) fn observe_frequent(observer: impl FnOnce()) {
    enter(Pace::Frequent, || {
        observer();
        Outcome::Forward
    });
}

/// Counts a call of the program by its result.
#[inline]
pub(in crate::hooks) fn count(calls: &Calls, result: CUresult) {
    calls.count();
    if result != CUresult::SUCCESS {
        failed(calls, result);
    }
}

#[cold]
#[inline(never)]
fn failed(calls: &Calls, error: CUresult) {
    calls.count_error();
    if sticky_error::is_first(error) {
        PROCESS.guard.faulted(error);
        let _whole = Uncancelled::new();
        preserve_errno(|| PROCESS.sharing.faulted());
    }
}

#[inline]
fn enter(pace: Pace, handler: impl FnOnce() -> Outcome) -> Outcome {
    THREAD_HOT.with(|mine| {
        if mine.inside.get() || process::forked() {
            return Outcome::Forward;
        }
        mine.inside.set(true);
        let _whole = (pace == Pace::Usual).then(Uncancelled::new);
        let answer = preserve_errno_at(mine.errno(), || catch_unwind(AssertUnwindSafe(handler)));
        mine.inside.set(false);
        answer.unwrap_or_else(panicked)
    })
}

#[cold]
#[inline(never)]
fn panicked(_: Box<dyn Any + Send>) -> Outcome {
    COUNTERS.fail_open("a panic in a hook");
    Outcome::Forward
}

#[cfg(test)]
mod tests;
