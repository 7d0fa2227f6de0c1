//! What the program does that sharing has to know of, before the driver gets the call.
//!
//! Whoever calls these stands inside the gate ([`crate::gate`]), but for [`allocated`], [`freed`] and [`waited`]. Afterwards the call may go on: what it writes
//! is memory of this process alone. All of them return at once where sharing is off.

use std::ops::Range;

use wm_abi::CUfunction;
use wm_driver::Device;
use wm_memory::Manager;

use crate::launches::LaunchArguments;

/// When a call's work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Submission {
    /// It is in a stream, or done when the call returns.
    Now,
    /// Whenever a graph is launched: the call is captured, or makes a node.
    InGraph,
}

/// Does anything below look at what it is told?
#[inline]
pub(crate) fn is_on() -> bool {
    false
}

/// A copy from memory of the host into a range.
pub(crate) fn loaded(_to: Range<u64>, _when: Submission) {}

/// A memset, or a copy from somewhere else, into a range; where a call does not tell how much it writes, up to the end of the block.
pub(crate) fn written(_to: Range<u64>, _when: Submission) {}

/// A copy within device memory.
pub(crate) fn copied(_to: Range<u64>, _from: u64, _when: Submission) {}

/// A kernel's launch, or its node.
///
/// # Safety
/// The arguments are those of a driver's launch function or node, and the call goes on.
pub(crate) unsafe fn launching(_function: CUfunction, _arguments: LaunchArguments, _when: Submission) {}

/// Something is launched that names its kernels and copies nowhere: any graph.
pub(crate) fn graph_launching() {}

/// A graph is about to be made executable, or changed.
pub(crate) fn instantiating() {}

/// The program does something that sharing does not go with, for the rest of the process.
pub(crate) fn give_up(_why: &'static str) {}

/// The program was given a block.
pub(crate) fn allocated(_address: u64, _bytes: u64) {}

/// The program frees a block.
pub(crate) fn freed(_address: u64) {}

/// The host has waited for the GPU.
pub(crate) fn waited(_manager: &Manager<Device>) {}
