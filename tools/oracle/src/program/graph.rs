//! The work of graphs.

use serde::{Deserialize, Serialize};

/// The work of a graph, captured or built node by node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Node {
    /// A block is stamped and checked.
    Mark { block: usize },
    /// A block of the graph's own is allocated, stamped, checked and freed.
    Own { bytes: u64 },
    /// Another stream joins by an event, and leaves by another one: each stream stamps and checks a
    /// block beside the other.
    Fork { stream: usize, here: usize, there: usize },
    /// A block of the graph's own is used and freed in another stream, which joins and leaves.
    Lend { stream: usize, bytes: u64 },
    /// Pinned host memory is copied to a block.
    Load { host: usize, block: usize },
    /// A block is copied to pinned host memory.
    Save { block: usize, host: usize },
    /// A memset writes a value into a block.
    Set { block: usize },
    /// One block is copied to another of its size.
    Copy { from: usize, to: usize },
}

impl Node {
    /// The program's blocks into which it writes values of its own.
    pub(crate) fn blocks(&self) -> Vec<usize> {
        match self {
            Self::Mark { block } | Self::Set { block } => vec![*block],
            Self::Fork { here, there, .. } => vec![*here, *there],
            _ => Vec::new(),
        }
    }

    /// Does it use a block?
    pub(crate) fn uses(&self, block: usize) -> bool {
        match self {
            Self::Load { block: used, .. } | Self::Save { block: used, .. } => *used == block,
            Self::Copy { from, to } => [*from, *to].contains(&block),
            _ => self.blocks().contains(&block),
        }
    }

    /// Has it a node of its own in a graph that is built node by node?
    pub(crate) fn is_built(&self) -> bool {
        matches!(self, Self::Set { .. } | Self::Copy { .. })
    }

    /// A block and host memory, the ends of a copy.
    pub(crate) fn ends(&self) -> Option<(usize, usize)> {
        match self {
            Self::Load { host, block } | Self::Save { block, host } => Some((*block, *host)),
            _ => None,
        }
    }

    /// The second captured stream.
    pub(crate) fn branch(&self) -> Option<usize> {
        match self {
            Self::Fork { stream, .. } | Self::Lend { stream, .. } => Some(*stream),
            _ => None,
        }
    }
}
