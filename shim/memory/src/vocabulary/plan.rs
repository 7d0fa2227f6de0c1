//! Plans as plain values: an extent to be made, and the steps that take things apart.
//! `manager/execute.rs` carries them out.

use wm_abi::CUresult;
use wm_driver::{Handle, Tier};

/// Where a part of a new extent comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExtentPart {
    /// A handle that exists, mapped elsewhere or not.
    Existing { handle: Handle, bytes: u64 },
    /// A handle to be made.
    New { tier: Tier, bytes: u64 },
}

impl ExtentPart {
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Existing { bytes, .. } | Self::New { bytes, .. } => bytes,
        }
    }

    /// The other GPU of whose memory a handle is to be made.
    pub(crate) fn peer(self) -> Option<Tier> {
        match self {
            Self::New { tier: tier @ Tier::Peer(_), .. } => Some(tier),
            _ => None,
        }
    }
}

/// An extent to be made: its parts in the order of their addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Build {
    pub(crate) parts: Vec<ExtentPart>,
    /// Bytes of address space behind them that stay empty.
    pub(crate) gap: u64,
}

/// A step that takes something apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undo {
    Unmap {
        address: u64,
        bytes: u64,
        handle: Handle,
    },
    Unreserve {
        address: u64,
        bytes: u64,
    },
    /// `bytes` count as held until then: none of memory that other processes use too.
    Release {
        handle: Handle,
        tier: Tier,
        bytes: u64,
    },
}

impl Undo {
    /// Of a handle that is mapped alone in a reservation.
    pub(crate) fn of_lone_mapping(address: u64, bytes: u64, handle: Handle) -> [Self; 2] {
        [Self::Unmap { address, bytes, handle }, Self::Unreserve { address, bytes }]
    }
}

/// Steps in the order they must be taken.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub(crate) unmap: Vec<Undo>,
    pub(crate) unreserve: Vec<Undo>,
    pub(crate) release: Vec<Undo>,
}

impl Steps {
    pub(crate) fn in_order(self) -> Vec<Undo> {
        self.unmap.into_iter().chain(self.unreserve).chain(self.release).collect()
    }
}

/// The extent that a [`Build`] made.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) base: u64,
    /// One a part.
    pub(crate) handles: Vec<Handle>,
    /// Takes all of it apart again.
    pub(crate) undo: Vec<Undo>,
}

/// Why a [`Build`] failed. All of it was undone but the steps in `not_undone`.
#[derive(Debug)]
pub(crate) struct BuildFailure {
    pub(crate) code: CUresult,
    /// The tier whose memory could not be made, if that was it.
    pub(crate) tier: Option<Tier>,
    pub(crate) not_undone: Vec<Undo>,
}
