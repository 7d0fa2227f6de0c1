//! Shares: the results of giving chunks of blocks memory that other processes use too.

use crate::vocabulary::moves::MoveRefusal;

/// A part of a block that is one handle: its first address, and the block's number
/// ([`crate::Block::id`]). After the block's end it names nothing, even if another block has the
/// address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockChunk {
    /// Where it begins.
    pub address: u64,
    /// Which block it is a part of.
    pub block: u64,
}

/// Whether all earlier work of the GPU is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quiet {
    /// It is looked, once.
    Look,
    /// The caller has looked, or waited, since it began to see to it that no work is submitted: for
    /// where the GPU cannot be asked again, as in a process with several contexts, or where that
    /// takes as long as other processes have it.
    Seen,
}

/// The result of one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShareOutcome {
    /// It lies in the shared memory now, for reading only.
    Shared,
    /// It has its own memory still, but after [`MoveRefusal::Lost`].
    Refused(MoveRefusal),
    /// Time was over before it.
    NotTried,
}

impl From<Result<(), MoveRefusal>> for ShareOutcome {
    fn from(shared: Result<(), MoveRefusal>) -> Self {
        shared.map_or_else(Self::Refused, |()| Self::Shared)
    }
}

/// The results of several chunks, in the order in which they were named. Handles of those that are
/// not shared are still the caller's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SharedChunks {
    /// One a chunk.
    pub outcomes: Vec<ShareOutcome>,
}

impl SharedChunks {
    /// How many are shared.
    pub fn count(&self) -> usize {
        self.outcomes.iter().filter(|outcome| **outcome == ShareOutcome::Shared).count()
    }
}

/// The result of taking a shared chunk back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakenBack {
    /// It can be written, and its memory is this process's alone.
    Private,
    /// It can be read only, as before, but after [`MoveRefusal::Lost`].
    Refused(MoveRefusal),
    /// Time was over before it.
    NotTried,
}

/// The result of giving up memory that freed blocks shared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unparked {
    /// Bytes that were given up.
    pub bytes: u64,
    /// Bytes that are parked still: work may be touching them, or time was over.
    pub left: u64,
}
