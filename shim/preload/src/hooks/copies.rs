//! Copies between host and device: counted, then the driver's.

use wm_abi::CUstream;

use crate::boundary::Answer;
use crate::counters::{Direction, copied};

/// A synchronous copy, whatever the types of its ends.
pub(super) fn plain<D, S>(direction: Direction) -> impl Fn(D, S, usize) -> Answer {
    move |_, _, bytes| {
        copied(direction, bytes);
        Answer::Pass
    }
}

/// A copy in a stream.
pub(super) fn ordered<D, S>(direction: Direction) -> impl Fn(D, S, usize, CUstream) -> Answer {
    move |_, _, bytes, _| {
        copied(direction, bytes);
        Answer::Pass
    }
}
