//! The wishes that a command line has for programs.

use crate::program::Rules;

/// What programs may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wishes {
    pub(crate) devices: usize,
    /// Most steps of a program.
    pub(crate) steps: usize,
    pub(crate) rules: Rules,
    /// Has the device green contexts?
    pub(crate) green: bool,
    /// May streams be held up?
    pub(crate) gates: bool,
    /// Is memory short, so that every allocation may fail?
    pub(crate) scarce: bool,
    /// Copies between blocks and memory of the host's.
    pub(crate) copies: bool,
    /// Is there a sibling that programs do not use?
    pub(crate) sibling: bool,
    /// May such copies be held up by gates? A real device's may hold up copies of other streams.
    pub(crate) held_copies: bool,
}
