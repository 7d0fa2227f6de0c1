//! Which of our blocks a kernel launch may touch: those that its parameters point into.
//!
//! | module | one idea |
//! |---|---|
//! | [`layouts`] | where each function's parameters lie, as the driver tells it, remembered by handle |
//! | [`words`] | from a launch's arguments to words that may be addresses; reads the program's memory, asks nobody |
//! | [`touched`] | from words to blocks |
//! | [`images`] | which code a function is, the same in every process |
//!
//! Nothing here runs unless something has subscribed: a launch then costs one load and one branch. A set may be too large (a number
//! that looks like an address, a pointer that the kernel does not follow) and lacks what a kernel reaches through pointers in device
//! memory; so it is evidence of use, not proof of the opposite. Where the driver does not tell parameters (before CUDA 12.4), or the
//! arguments are not as the driver wants them, the set is unknown, and says so.
//!
//! Out of scope: kernels in graphs. A launch into a capture makes a node and touches nothing; what `cuGraphLaunch` runs is unknown.

pub(crate) mod images;
pub(crate) mod layouts;
mod touched;
mod words;

use std::sync::atomic::Ordering;

use wm_abi::CUfunction;

use crate::process::PROCESS_HOT;
use crate::registry;
pub(crate) use touched::{ADDRESS_BITS, Touched, TouchedBlock};
pub(crate) use words::LaunchArguments;

/// Who wants to know of launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subscriber {
    /// `trace`: which blocks a launch may touch.
    Blocks = 1,
    /// `moves`: the words of its arguments, which cost less.
    Words = 2,
    /// `dedup`, which looks at them itself.
    Sharing = 4,
}

/// Launches are looked at from now on. To be called before the first hook runs: which handles are kernels of libraries is learned
/// where the program gets them.
pub(crate) fn subscribe(who: Subscriber) {
    PROCESS_HOT.launches.fetch_or(who as u8, Ordering::Relaxed);
}

/// Does anything want to know of launches?
#[inline]
pub(crate) fn is_observed() -> bool {
    PROCESS_HOT.launches.load(Ordering::Relaxed) != 0
}

/// Does this one?
#[inline]
pub(crate) fn has_subscribed(who: Subscriber) -> bool {
    PROCESS_HOT.launches.load(Ordering::Relaxed) & who as u8 != 0
}

/// Hands every word of a launch's arguments that may be an address to `each`, with its offset among the parameters. `None` if its parameters are not known by heart,
/// `Some(false)` if the driver does not tell them. A few nanoseconds: asks nobody.
///
/// # Safety
/// As for [`touched`].
#[inline]
pub(crate) unsafe fn words(
    function: CUfunction,
    arguments: LaunchArguments,
    mut each: impl FnMut(u32, u64),
) -> Option<bool> {
    let Some(layout) = layouts::recent(function)? else { return Some(false) };
    let mut take = |offset, word| {
        if touched::is_address(word) {
            each(offset, word);
        }
    };
    // Arguments that are not as the driver wants them it refuses.
    // SAFETY: by contract.
    let _read = unsafe { arguments.words(layout, &mut take) };
    Some(true)
}

/// As [`words`], and asks the driver.
///
/// # Safety
/// As for [`touched`].
#[cold]
pub(crate) unsafe fn words_asked(
    function: CUfunction,
    arguments: LaunchArguments,
    each: impl FnMut(u32, u64),
) -> Option<bool> {
    layouts::of(function);
    // SAFETY: by contract.
    unsafe { words(function, arguments, each) }
}

/// The blocks that a launch's parameters point into. Takes no lock that an allocation takes.
///
/// # Safety
/// The arguments are those of a driver's launch function, and the call goes on.
pub(crate) unsafe fn touched(function: CUfunction, arguments: LaunchArguments) -> Touched {
    let Some(layout) = layouts::of(function) else { return Touched::Unknown };
    let mut set = touched::Collector::default();
    // SAFETY: by contract.
    let read = unsafe { arguments.words(layout, |_, word| set.take(word, owner_and_block)) };
    if read { set.finish() } else { Touched::Unknown }
}

/// Who a kernel is to this process: another one after code was unloaded, which may have had the handle before.
#[inline]
pub(crate) fn identity(function: CUfunction) -> (u64, usize) {
    (layouts::forgotten(), function.0)
}

/// The code of a kernel that the program launches, if it is known. Asks the driver.
pub(crate) fn code(function: CUfunction) -> Option<images::FunctionCode> {
    images::of(function)
}

/// The block that an address is in. Wait-free.
fn owner_and_block(address: u64) -> Option<TouchedBlock> {
    let manager = registry::owner(address)?;
    let block = manager.block(address)?;
    let (device, bytes) = (manager.gpu().ordinal(), block.tiers.total());
    Some(TouchedBlock { address: block.address, bytes, id: block.id, device })
}
