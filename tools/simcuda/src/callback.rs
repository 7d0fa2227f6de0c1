//! Host functions that a stream calls, and the rule that they may not call the driver.

use std::cell::Cell;

use wm_abi::CUresult;

use crate::entry::Outcome;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// May the calling thread call the driver?
///
/// # Errors
/// `NOT_PERMITTED` inside a host function of a stream.
pub(crate) fn permit() -> Outcome {
    if INSIDE.get() { Err(CUresult::NOT_PERMITTED) } else { Ok(()) }
}

/// Runs a host function of a stream.
pub(crate) fn run(function: impl FnOnce()) {
    INSIDE.set(true);
    function();
    INSIDE.set(false);
}
