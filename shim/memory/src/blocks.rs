//! What the program got: every block that is live, cached, or about to become live.
//!
//! Found by first address with one hash look-up (free and hit need no more), and by any address inside through an
//! ordered index that only the back end changes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fast_map::FastMap;
use crate::order::Order;
use crate::tiers::TierBytes;

/// A live block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// First address.
    pub address: u64,
    /// Size in bytes, as asked for.
    pub bytes: usize,
    /// Unique in the process, new for every allocation: caches may key on it although addresses return.
    pub id: u64,
    /// What it was allocated by.
    pub order: Order,
    /// Where its bytes are; they count rounded up to 512.
    pub tiers: TierBytes,
}

impl Block {
    /// Its part in what a stream-ordered pool calls used.
    pub(crate) fn pooled(&self) -> u64 {
        match self.order {
            Order::Stream(_) => self.bytes as u64,
            Order::Device => 0,
        }
    }
}

/// Ids are process-unique although every GPU has a manager of its own.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

pub(crate) fn new_id() -> u64 {
    NEXT_ID.fetch_add(1, Ordering::Relaxed)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Its memory is set aside; the calls that make it usable are under way.
    Granted,
    Live,
    /// Freed, in the front cache.
    Cached,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) block: Block,
    /// Size in the ledger.
    pub(crate) bytes: u64,
    pub(crate) state: State,
    /// Alone in its extent, which goes when the block does.
    pub(crate) guarded: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Blocks {
    by_address: FastMap<u64, Piece>,
    ordered: BTreeSet<u64>,
}

impl Blocks {
    pub(crate) fn insert(&mut self, piece: Piece) {
        self.ordered.insert(piece.block.address);
        self.by_address.insert(piece.block.address, piece);
    }

    pub(crate) fn remove(&mut self, address: u64) -> Option<Piece> {
        self.ordered.remove(&address);
        self.by_address.remove(&address)
    }

    pub(crate) fn starting_at(&mut self, address: u64) -> Option<&mut Piece> {
        self.by_address.get_mut(&address)
    }

    /// The piece that `address` is in, by its rounded size.
    pub(crate) fn around(&self, address: u64) -> Option<&Piece> {
        let start = self.ordered.range(..=address).next_back()?;
        self.by_address.get(start).filter(|piece| address - start < piece.bytes)
    }

    /// All pieces, lowest address first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Piece> {
        self.ordered.iter().filter_map(|address| self.by_address.get(address))
    }

    pub(crate) fn clear(&mut self) {
        self.by_address.clear();
        self.ordered.clear();
    }
}
