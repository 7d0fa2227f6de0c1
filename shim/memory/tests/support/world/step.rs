//! The steps of a program.

use wm_driver::{StreamId, Tier};
use wm_memory::{Order, Processor};

/// A step of a program. Indices are taken modulo the length of the list.
#[derive(Debug, Clone)]
pub enum Step {
    Allocate {
        bytes: usize,
        order: Order,
    },
    Touch {
        index: usize,
        stream: StreamId,
    },
    /// In a stream, or as `cuMemFree`: after a wait for the device, or behind all of its work.
    Free {
        index: usize,
        order: Order,
    },
    Run {
        stream: StreamId,
        part: u8,
    },
    Synchronize {
        stream: StreamId,
    },
    SynchronizeAll,
    Trim {
        keep: u64,
    },
    Relieve {
        bytes: u64,
    },
    /// The device's limit changes.
    Limit {
        bytes: u64,
    },
    Destroy {
        stream: StreamId,
    },
    Capture {
        stream: StreamId,
        on: bool,
    },
    Refresh,
    /// A part of a block to another tier, once the device has no work left or at any time, with
    /// driver calls that fail.
    Move {
        index: usize,
        part: u8,
        to: Tier,
        settle: bool,
        fail: Option<(u64, u64)>,
    },
    /// All of one block from a part on leaves the device, as much of another one as that is comes
    /// to it.
    Exchange {
        indices: [usize; 2],
        parts: [u8; 2],
        settle: bool,
        fail: Option<(u64, u64)>,
    },
    /// All memory leaves the device and is not mapped, some blocks are freed, and some of what left
    /// comes back.
    Pause {
        frees: Vec<usize>,
        comes: u8,
        settle: bool,
        fails: [Option<(u64, u64)>; 3],
    },
    /// Copies end late, or at once again.
    SlowCopies(bool),
    /// As a move: chunks of a block share memory with other processes.
    Share {
        index: usize,
        part: u8,
        donates: bool,
        settle: bool,
        fail: Option<(u64, u64)>,
    },
    Unshare {
        index: usize,
        part: u8,
        settle: bool,
        fail: Option<(u64, u64)>,
    },
    /// Shared chunks of a block that no other process uses any more can be written again.
    TakeBack {
        index: usize,
        part: u8,
        settle: bool,
        fail: Option<(u64, u64)>,
    },
    Unpark {
        fail: Option<(u64, u64)>,
    },
    /// A block that the CPU and the GPU use in turn.
    AllocateUnified {
        bytes: usize,
        order: Order,
    },
    /// The program makes memory itself, and maps it.
    MakePiece {
        granules: u64,
        tier: Tier,
    },
    TouchPiece {
        index: usize,
        stream: StreamId,
    },
    Adopt {
        index: usize,
    },
    Disown {
        index: usize,
        fail: Option<(u64, u64)>,
    },
    /// It waits for the device, unmaps its memory and releases it.
    DropPiece {
        index: usize,
    },
    /// An adopted piece gets memory of other processes with the same bytes, or gives its own away.
    SharePiece {
        index: usize,
        donates: bool,
        settle: bool,
        fail: Option<(u64, u64)>,
    },
    UnsharePiece {
        index: usize,
        settle: bool,
        fail: Option<(u64, u64)>,
    },
    /// As a move: an adopted piece, and a block the other way.
    MovePiece {
        index: usize,
        beside: usize,
        to: Tier,
        settle: bool,
        fail: Option<(u64, u64)>,
    },
    /// As a move: such a block becomes the CPU's, or the GPU's.
    HandOver {
        index: usize,
        to: Processor,
        settle: bool,
        fail: Option<(u64, u64)>,
    },
}
