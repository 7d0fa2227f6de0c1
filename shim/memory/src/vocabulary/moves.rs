//! Moves of memory between tiers: their results, and the reasons why one was not made.

use std::ops::Range;

use serde::Serialize;
use thiserror::Error;
use wm_abi::CUresult;
use wm_driver::Tier;

/// The memory that is to move, and its destination.
#[derive(Debug, Clone)]
pub struct MoveOrder {
    /// Addresses in live blocks.
    pub range: Range<u64>,
    /// Where they go.
    pub to: Tier,
    /// Only handles whose used bytes all lie in the range.
    pub alone: bool,
    /// The contents of the range are not needed any more, and are not copied.
    pub discards: bool,
    /// What leaves for the host is not mapped at its addresses, before it comes back to the device
    /// or [`Manager::map_unmapped`](crate::Manager::map_unmapped) maps it.
    pub unmaps: bool,
    /// Memory that other processes use too moves as well: its bytes go to memory of this process's
    /// own.
    pub unshares: bool,
}

impl MoveOrder {
    /// All handles of a range go to a tier, with their bytes, and are mapped there.
    pub fn new(range: Range<u64>, to: Tier) -> Self {
        Self { range, to, alone: false, discards: false, unmaps: false, unshares: false }
    }
}

/// The result of a [`MoveOrder`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MovedRange {
    /// By size of handles.
    pub bytes: u64,
    /// Handles.
    pub count: u64,
    /// Where to go on; the range's end where all of it was tried.
    pub next: u64,
    /// Why the last handle that stayed did so. A handle that was there already does not count.
    pub refusal: Option<MoveRefusal>,
}

/// A range of a swap, and how far it has come.
#[derive(Debug, Clone)]
pub struct RangeMove {
    /// The memory that is to move.
    pub order: MoveOrder,
    /// No handle is begun once so many bytes have moved.
    pub most: u64,
    /// Only memory of this tier moves; `None`: memory of any tier.
    pub from: Option<Tier>,
    /// The result so far.
    pub moved: MovedRange,
    /// Bytes of handles that were begun.
    pub(crate) begun: u64,
}

impl RangeMove {
    /// Nothing has moved yet.
    pub fn new(order: MoveOrder, most: u64) -> Self {
        let moved = MovedRange { next: order.range.start, ..MovedRange::default() };
        Self { order, most, from: None, moved, begun: 0 }
    }

    /// Only memory of that tier moves.
    #[must_use]
    pub fn only_from(self, tier: Tier) -> Self {
        Self { from: Some(tier), ..self }
    }

    /// What is left of it, and how much of that may be begun, in bytes.
    pub(crate) fn rest(&self) -> (Range<u64>, u64) {
        (self.moved.next..self.order.range.end, self.most.saturating_sub(self.begun))
    }

    /// Is there nothing more to begin?
    pub fn is_over(&self) -> bool {
        self.moved.next >= self.order.range.end || self.begun >= self.most
    }
}

/// Where the memory comes from that a handle gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpareSource {
    /// Idle memory, or memory that is made at once, or kept copies.
    Made,
    /// Idle memory.
    Idle,
    /// Idle memory, and kept copies of other handles: no more can be made.
    Kept,
}

/// Memory that moves lacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpareLack {
    /// The range whose next handle needs it.
    pub(crate) at: usize,
    pub(crate) tier: Tier,
    /// Of one handle.
    pub(crate) bytes: u64,
}

/// Memory that was made ahead of moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MadeAhead {
    /// Bytes that are lacking still.
    pub lacking: u64,
    /// No more can be made.
    pub is_full: bool,
}

/// A move that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// First address of the memory that moved: one handle, and with it every block that lies in it.
    pub address: u64,
    /// Size of the handle.
    pub bytes: u64,
    /// Bytes that were copied: parts without a block were not.
    pub copied: u64,
    /// Bytes of blocks that were not copied, since the other memory had them.
    pub clean: u64,
}

/// Why memory was not moved. Its contents and its tier are as before, except after
/// [`MoveRefusal::Lost`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MoveRefusal {
    /// Others rely on where memory is.
    #[error("memory stays where it is in this process")]
    Fixed,
    /// No block is there.
    #[error("no block lies there")]
    NoBlock,
    /// It is there already, or the user does not allow that tier, or neither end is the device.
    #[error("it cannot move there")]
    Unfit,
    /// Others' blocks lie on the same memory.
    #[error("other blocks lie on the same memory")]
    Shared,
    /// A block there is to stay on the device.
    #[error("a block is pinned to the device")]
    Pinned,
    /// Others than the process's streams use a block there.
    #[error("others rely on where a block is")]
    InPlace,
    /// A copy or a memset of a graph names a block there.
    #[error("a graph names a block there")]
    InGraph,
    /// A block there is the CPU's for now.
    #[error("the CPU uses a block there")]
    OnCpu,
    /// Another thread is changing the place of memory.
    #[error("other changes are under way")]
    Busy,
    /// Work may be touching it.
    #[error("work may be touching it")]
    InUse,
    /// There is no memory to be had for it.
    #[error("the other tier is full")]
    Full,
    /// The copy took too long. The memory that it was to fill is given back once the copy is over.
    #[error("the copy takes too long")]
    Slow,
    /// The driver failed, and the steps made before were undone.
    #[error("{0}")]
    Driver(CUresult),
    /// The driver failed, and then refused to undo it: nothing is mapped where the block was. A
    /// later access is an error, and never another one's bytes.
    #[error("memory is lost, since the driver failed: {0}")]
    Lost(CUresult),
}

impl MoveRefusal {
    /// Why memory was not moved, in words for statistics.
    pub const REASONS: [&'static str; 14] = [
        "others rely on where memory is",
        "no block lies there",
        "it cannot move there",
        "other blocks lie on the same memory",
        "a block is pinned to the device",
        "other changes are under way",
        "work may be touching it",
        "the other tier is full",
        "the copy takes too long",
        "the driver failed",
        "the driver failed, and memory is lost",
        "the CPU uses a block there",
        "a graph names a block there",
        "others rely on where a block is",
    ];

    /// The reason in words, without the driver's code.
    pub fn reason(self) -> &'static str {
        Self::REASONS[self.kind()]
    }

    fn kind(self) -> usize {
        match self {
            Self::Fixed => 0,
            Self::NoBlock => 1,
            Self::Unfit => 2,
            Self::Shared => 3,
            Self::Pinned => 4,
            Self::Busy => 5,
            Self::InUse => 6,
            Self::Full => 7,
            Self::Slow => 8,
            Self::Driver(_) => 9,
            Self::Lost(_) => 10,
            Self::OnCpu => 11,
            Self::InGraph => 12,
            Self::InPlace => 13,
        }
    }

    /// Would other handles stay, too?
    pub(crate) fn is_general(self) -> bool {
        !matches!(
            self,
            Self::NoBlock
                | Self::Unfit
                | Self::Shared
                | Self::Pinned
                | Self::InGraph
                | Self::InPlace
                | Self::OnCpu
                | Self::InUse
        )
    }
}

impl From<CUresult> for MoveRefusal {
    fn from(code: CUresult) -> Self {
        Self::Driver(code)
    }
}

/// Bytes that moved so far, by size of handles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Moves {
    /// Bytes that came to the device.
    pub in_bytes: u64,
    /// Bytes that left it.
    pub out_bytes: u64,
    /// Those of them that were not copied, since the host still had them.
    pub clean_bytes: u64,
    /// Bytes of kept copies of which no fingerprint was taken: they are copied out again.
    pub unprinted_bytes: u64,
    /// Bytes that differed although their fingerprints were the same, as far as it was verified.
    pub unequal_bytes: u64,
    /// Moves that were asked for and not made.
    pub refused: u64,
    /// The same by reason, in the order of [`MoveRefusal::REASONS`].
    #[serde(skip)]
    pub reasons: [u64; MoveRefusal::REASONS.len()],
}

impl Moves {
    pub(crate) fn count(&mut self, to: Tier, moved: Result<Moved, MoveRefusal>) {
        match moved {
            Ok(moved) if to == Tier::Device => self.in_bytes += moved.bytes,
            Ok(moved) => {
                self.out_bytes += moved.bytes;
                self.clean_bytes += moved.clean;
            }
            Err(refusal) => {
                self.refused += 1;
                self.reasons[refusal.kind()] += 1;
            }
        }
    }
}
