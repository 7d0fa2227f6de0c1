//! Which of our blocks a kernel launch may touch: those that its parameters point into.
//!
//! | module | one idea |
//! |---|---|
//! | [`layouts`] | where each function's parameters lie, as the driver tells it, remembered by handle |
//! | [`words`] | from a launch's arguments to words that may be addresses; reads the program's memory, asks nobody |
//! | [`touched`] | from words to blocks |
//!
//! Nothing here runs unless something has subscribed: a launch then costs one load and one branch. A set may be too large (a number
//! that looks like an address, a pointer that the kernel does not follow) and lacks what a kernel reaches through pointers in device
//! memory; so it is evidence of use, not proof of the opposite. Where the driver does not tell parameters (before CUDA 12.4), or the
//! arguments are not as the driver wants them, the set is unknown, and says so.
//!
//! Out of scope: kernels in graphs. A launch into a capture makes a node and touches nothing; what `cuGraphLaunch` runs is unknown.

pub(crate) mod layouts;
mod touched;
mod words;

use std::sync::atomic::Ordering;

use wm_abi::CUfunction;

use crate::process::PROCESS_HOT;
use crate::registry;
pub(crate) use touched::{Touched, TouchedBlock};
pub(crate) use words::LaunchArguments;

/// Launches are looked at from now on. To be called before the first hook runs: which handles are kernels of libraries is learned
/// where the program gets them.
pub(crate) fn subscribe() {
    PROCESS_HOT.launches.store(true, Ordering::Relaxed);
}

/// Does anything want to know of launches?
#[inline]
pub(crate) fn is_observed() -> bool {
    PROCESS_HOT.launches.load(Ordering::Relaxed)
}

/// The blocks that a launch's parameters point into. Takes no lock that an allocation takes.
///
/// # Safety
/// The arguments are those of a driver's launch function, and the call goes on.
pub(crate) unsafe fn touched(function: CUfunction, arguments: LaunchArguments) -> Touched {
    let Some(layout) = layouts::of(function) else { return Touched::Unknown };
    let mut set = touched::Collector::default();
    // SAFETY: by contract.
    let read = unsafe { arguments.words(layout, |word| set.take(word, owner_and_block)) };
    if read { set.finish() } else { Touched::Unknown }
}

/// The block that an address is in. Wait-free.
fn owner_and_block(address: u64) -> Option<TouchedBlock> {
    let manager = registry::owner(address)?;
    let block = manager.block(address)?;
    let (device, bytes) = (manager.gpu().ordinal(), block.tiers.total());
    Some(TouchedBlock { address: block.address, bytes, id: block.id, device })
}
