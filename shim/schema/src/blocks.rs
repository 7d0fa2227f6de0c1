//! The answer to `blocks`: every block and every piece that a program holds.

use serde::{Deserialize, Serialize};

use crate::stats::BytesByTier;

/// The answer to `blocks`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockList {
    /// `wmshim-blocks/1`.
    pub schema: String,
    /// The process.
    pub pid: u32,
    /// One for each device that the program has used for memory.
    pub devices: Vec<DeviceBlocks>,
}

impl BlockList {
    /// The version of this answer.
    pub const SCHEMA: &'static str = "wmshim-blocks/1";
}

/// Blocks of a device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceBlocks {
    /// The device, as the process numbers it.
    pub ordinal: i32,
    /// By address.
    pub blocks: Vec<BlockEntry>,
    /// *Optional*: memory that the program made itself, in the order in which it was made.
    pub pieces: Vec<PieceEntry>,
}

/// A block that the program holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockEntry {
    /// First address.
    pub address: u64,
    /// Size that the program asked for.
    pub bytes: u64,
    /// Unique in the process, although addresses return.
    pub id: u64,
    /// The stream that it was allocated in, by a number of the library's; null for memory without a
    /// stream.
    pub stream: Option<u64>,
    /// Where its bytes are.
    pub tiers: BytesByTier,
}

/// Physical memory that the program made itself with `cuMemCreate`, and holds or has mapped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PieceEntry {
    /// Its size.
    pub bytes: u64,
    /// Unique among the pieces of the process.
    pub id: u64,
    /// Where its bytes are.
    pub tiers: BytesByTier,
    /// Where it is mapped, by address; empty for memory that is mapped nowhere.
    pub mappings: Vec<PieceRange>,
}

/// Addresses that a piece is mapped at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PieceRange {
    /// First address.
    pub address: u64,
    /// Their number.
    pub bytes: u64,
}
