//! Kernel launches, as subscribers see them: each is read once, into a [`Launch`].
//!
//! | module | one idea |
//! |---|---|
//! | [`launch`] | a launch: its function, its stream, and the argument words that may be addresses |
//! | [`layouts`] | where each function's parameters lie, as the driver tells it, remembered by handle |
//! | [`words`] | from a launch's arguments to their words; reads the program's memory only |
//! | [`numbers`] | the numbers of a launch that may be sizes |
//! | [`touched`] | from words to blocks |
//! | [`code`] | the facts about the loaded functions: layouts and images together |
//! | [`images`] | which code a function is, the same in every process |
//!
//! Without a subscriber a launch costs one load and one branch. The set of blocks may be too large:
//! a number may look like an address, and a kernel need not follow a pointer. It lacks the blocks
//! that a kernel reaches through pointers in device memory. So the set is evidence of use, and no
//! proof that other blocks are unused. If the driver does not tell the parameters, or the arguments
//! are not as the driver wants them, [`ArgumentsRead`] says so.
//!
//! Out of scope: kernels in graphs. A launch into a capture makes a node and uses no memory. Which
//! kernels `cuGraphLaunch` runs is unknown here.

mod code;
mod images;
mod launch;
mod layouts;
mod numbers;
mod touched;
mod words;

use std::sync::atomic::Ordering;

use crate::process::PROCESS_HOT;
pub(crate) use code::CODE;
pub(crate) use images::FunctionCode;
pub(crate) use launch::{Launch, LaunchPlace, LaunchedWork, Submission};
pub(crate) use touched::{ADDRESS_BITS, TouchedBlock, blocks_around};
#[cfg(test)]
pub(crate) use words::ParameterPlace;
pub(crate) use words::{ArgumentsRead, LaunchArguments, LaunchWord};

/// A subsystem that is shown launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subscriber {
    /// `moves/last_use`.
    LastUse = 1,
    /// `moves/predictor`, from the first block on that finds no room.
    Predictor = 2,
    /// `trace`.
    Trace = 4,
    /// `dedup`.
    Sharing = 8,
}

/// A subsystem may subscribe later, at any time. To be called before the first hook runs: which
/// handles are kernels of libraries is learned when the program gets them.
pub(crate) fn expect_subscription() {
    CODE.layouts.expect_kernels();
}

/// Shows launches to a subsystem from now on. The first subscription of the process is made before
/// the first hook runs, or was expected then.
pub(crate) fn subscribe(subscriber: Subscriber) {
    expect_subscription();
    PROCESS_HOT.launches.fetch_or(subscriber as u8, Ordering::Relaxed);
}

/// Ends a subscription. A launch on another thread may still be shown.
pub(crate) fn unsubscribe(subscriber: Subscriber) {
    PROCESS_HOT.launches.fetch_and(!(subscriber as u8), Ordering::Relaxed);
}

/// Has any subsystem subscribed?
#[inline]
pub(crate) fn is_observed() -> bool {
    PROCESS_HOT.launches.load(Ordering::Relaxed) != 0
}

/// Has this one subscribed?
#[inline]
pub(crate) fn has_subscribed(subscriber: Subscriber) -> bool {
    PROCESS_HOT.launches.load(Ordering::Relaxed) & subscriber as u8 != 0
}
