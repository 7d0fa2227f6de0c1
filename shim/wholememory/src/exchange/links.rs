//! A rank's connections to the ranks that it hears, and to the rank that hears it.

use super::link::RankLink;

/// A link to ranks that this one hears.
#[derive(Debug)]
pub(super) struct Spoke {
    pub(super) link: RankLink,
    /// Ascending: the rank at the other end, or all ranks of its machine.
    pub(super) ranks: Vec<usize>,
}

/// A rank's connections.
#[derive(Debug, Default)]
pub(super) struct RankLinks {
    /// Of a leader.
    pub(super) spokes: Vec<Spoke>,
    /// To the leader of this machine, or of a leader to the root.
    pub(super) up: Option<RankLink>,
}
