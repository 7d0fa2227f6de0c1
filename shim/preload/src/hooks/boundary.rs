//! Where a program's call enters and leaves us.
//!
//! Every hook passes through [`enter_hook`], which holds the rules of an interposer in one place: the call is counted;
//! a call from inside ourselves and any call in a forked child go straight to the driver; a panic stops here and the
//! real call is made instead; `errno` is what the driver left; a thread is not cancelled inside. Calls that are frequent and mostly
//! answered from memory see to that last rule where they leave memory: in driver calls, the log, the trace.

use std::any::Any;
use std::hint::cold_path;
use std::panic::{AssertUnwindSafe, catch_unwind};

use wm_abi::CUresult;
use wm_driver::thread::Uncancelled;

use crate::counters::{Calls, fail_open};
use crate::guard;
use crate::process::{self, THREAD_HOT, kept, sticky_error};

/// What a handler says.
pub(super) enum Outcome {
    /// Not ours: make the real call with the same arguments.
    Forward,
    /// This is the result.
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
pub(super) enum Pace {
    /// So often that ten nanoseconds count.
    Frequent,
    Usual,
}

/// Runs a handler, or the real call where the handler must not or cannot answer.
#[inline]
pub(super) fn enter_hook(
    calls: &Calls,
    pace: Pace,
    handler: impl FnOnce() -> Outcome,
    real: impl FnOnce() -> CUresult,
) -> CUresult {
    let result = match enter(pace, handler) {
        Outcome::Return(result) => result,
        Outcome::Forward => {
            // Where the driver serves the call, a jump more does not count.
            cold_path();
            real()
        }
    };
    count(calls, result);
    result
}

/// Counts a call of the program by its result.
#[inline]
pub(super) fn count(calls: &Calls, result: CUresult) {
    calls.note();
    if result != CUresult::SUCCESS {
        failed(calls, result);
    }
}

#[cold]
#[inline(never)]
fn failed(calls: &Calls, error: CUresult) {
    calls.note_error();
    if sticky_error::is_first(error) {
        guard::faulted(error);
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
        let answer = kept(mine.errno(), || catch_unwind(AssertUnwindSafe(handler)));
        mine.inside.set(false);
        answer.unwrap_or_else(panicked)
    })
}

#[cold]
#[inline(never)]
fn panicked(_: Box<dyn Any + Send>) -> Outcome {
    fail_open("a panic in a hook");
    Outcome::Forward
}

#[cfg(test)]
mod tests;
