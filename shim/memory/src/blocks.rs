//! What the program got: every block that is live, cached, or about to become live.
//!
//! Found by first address with one hash look-up (free and hit need no more), and by any address inside through the
//! directory, which shows the live ones to readers without the lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::directory::{Directory, Editor};
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

fn new_id() -> u64 {
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
    /// Where the directory has it.
    slot: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Blocks {
    by_address: FastMap<u64, Piece>,
    editor: Editor,
}

impl Blocks {
    /// For readers without the lock.
    pub(crate) fn directory(&self) -> &Arc<Directory> {
        self.editor.directory()
    }

    /// Notes a piece that is being granted.
    pub(crate) fn insert(&mut self, block: Block, bytes: u64, guarded: bool) {
        let slot = self.editor.enter(block.address, bytes);
        self.by_address.insert(block.address, Piece { block, bytes, state: State::Granted, guarded, slot });
    }

    pub(crate) fn remove(&mut self, address: u64) -> Option<Piece> {
        let piece = self.by_address.remove(&address)?;
        self.editor.strike(piece.slot, address);
        Some(piece)
    }

    /// Makes a granted or cached piece a live block of `bytes`.
    pub(crate) fn give_out(&mut self, address: u64, bytes: usize, order: Order) -> Option<Block> {
        let piece = self.by_address.get_mut(&address)?;
        piece.block = Block { bytes, order, id: new_id(), ..piece.block };
        piece.state = State::Live;
        self.editor.show(piece.slot, &piece.block);
        Some(piece.block)
    }

    /// Makes a live block a cached piece; `None` if none starts there.
    pub(crate) fn take_back(&mut self, address: u64) -> Option<Piece> {
        let piece = self.by_address.get_mut(&address).filter(|piece| piece.state == State::Live)?;
        piece.state = State::Cached;
        self.editor.hide(piece.slot);
        Some(*piece)
    }

    /// The live block that `address` is in.
    pub(crate) fn around(&self, address: u64) -> Option<Block> {
        self.directory().look_up(address)
    }

    /// All pieces, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Piece> {
        self.by_address.values()
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = &Block> {
        self.all().filter(|piece| piece.state == State::Live).map(|piece| &piece.block)
    }

    pub(crate) fn clear(&mut self) {
        for (address, piece) in self.by_address.drain() {
            self.editor.strike(piece.slot, address);
        }
    }

    /// Checks what readers see: a live block at its first byte and its last, and nothing where a piece is not live.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let seen = |piece: &Piece| {
            let expected = (piece.state == State::Live).then_some(piece.block);
            let (first, last) = (piece.block.address, piece.block.address + piece.bytes - 1);
            [first, last].map(|address| self.around(address)) == [expected; 2]
        };
        match self.all().find(|piece| !seen(piece)) {
            Some(piece) => Err(format!("readers see something else than {piece:x?}")),
            None => Ok(()),
        }
    }
}
