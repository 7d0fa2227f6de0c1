//! The options of the command line for programs.

use crate::program::Rules;

/// The allowed content of programs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wishes {
    pub(crate) devices: usize,
    /// The most steps of a program.
    pub(crate) steps: usize,
    pub(crate) rules: Rules,
    /// Has the device green contexts?
    pub(crate) green: bool,
    /// May gates hold streams?
    pub(crate) gates: bool,
    /// Is memory scarce, so that every allocation may fail?
    pub(crate) scarce: bool,
    /// Copies between blocks and host memory.
    pub(crate) copies: bool,
    /// Is there a sibling that programs do not use?
    pub(crate) sibling: bool,
    /// May gates hold such copies? On a real device these may hold copies of other streams.
    pub(crate) held_copies: bool,
    /// Memory that programs make themselves.
    pub(crate) mapped: bool,
    /// Memory is to move: one context, and blocks that are large enough.
    pub(crate) moves: bool,
}
