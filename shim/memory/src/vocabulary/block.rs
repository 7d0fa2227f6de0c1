//! A block as the program knows it: the answer of look-ups and reports.

use crate::vocabulary::order::Order;
use crate::vocabulary::tiers::TierBytes;

/// A live block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// First address.
    pub address: u64,
    /// Size in bytes, as asked for.
    pub bytes: usize,
    /// Unique in the process, new for every allocation: caches may key on it although addresses
    /// return.
    pub id: u64,
    /// The order that it was allocated by.
    pub order: Order,
    /// Where its bytes are; they count rounded up to 512.
    pub tiers: TierBytes,
}

/// A live block, without its kind and its tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockExtent {
    /// As [`Block::id`].
    pub id: u64,
    /// First address.
    pub address: u64,
    /// Size in bytes, rounded up to 512.
    pub bytes: u64,
}

impl From<Block> for BlockExtent {
    fn from(block: Block) -> Self {
        Self { id: block.id, address: block.address, bytes: block.tiers.total() }
    }
}
