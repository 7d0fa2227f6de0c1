//! What the program got: every block that is live, cached, or about to become live.
//!
//! By first address, one look at one cache line finds a block. By any address inside, the directory finds the live ones,
//! for readers without the lock.
//!
//! Host memory: 128 to 512 bytes a block, and what the directory takes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::books::directory::{Directory, DirectoryWriter};
use crate::containers::table::{Keyed, Table};
use crate::vocabulary::block::Block;
use crate::vocabulary::order::Order;
use crate::vocabulary::tiers::TierBytes;

/// Ids are process-unique although every GPU has a manager of its own, which takes them by the thousand: all threads meet
/// here.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);
const IDS: u64 = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Its memory is set aside; the calls that make it usable are under way.
    Granted,
    /// Its size as asked for, and what it was allocated by.
    Live { asked: usize, order: Order },
    /// Freed, in the free cache.
    Cached(Cached),
}

/// What the free cache notes in its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cached {
    /// The number of its free, in its order.
    pub(crate) freed: u64,
    /// First address of the block to be given out after it, or 0.
    pub(crate) next: u64,
}

/// A cache line: a hit or a free looks at one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(64))]
pub(crate) struct Piece {
    pub(crate) address: u64,
    /// Where its bytes are, and with it its size in the ledger.
    pub(crate) tiers: TierBytes,
    state: State,
    /// Its own, in the directory.
    slot: u32,
    /// Alone in its extent, which goes when the block does.
    pub(crate) guarded: bool,
}

impl Piece {
    pub(crate) fn new(address: u64, tiers: TierBytes, guarded: bool) -> Self {
        Self { address, tiers, state: State::Granted, slot: 0, guarded }
    }

    /// Size in the ledger.
    pub(crate) fn bytes(&self) -> u64 {
        self.tiers.total()
    }

    /// Its part in what a stream-ordered pool calls used.
    pub(crate) fn pooled(&self) -> u64 {
        match self.state {
            State::Live { asked, order: Order::Stream(_) } => asked as u64,
            _ => 0,
        }
    }

    fn is_live(&self) -> bool {
        matches!(self.state, State::Live { .. })
    }

    pub(crate) fn is_cached(&self) -> bool {
        matches!(self.state, State::Cached(_))
    }
}

impl Keyed for Piece {
    type Key = u64;

    fn key(&self) -> u64 {
        self.address
    }
}

const _: () = assert!(size_of::<Option<Piece>>() == 64, "a piece is one cache line");

#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// By first address.
    pieces: Table<Piece>,
    writer: DirectoryWriter,
    ids: Range<u64>,
}

impl Blocks {
    /// For readers without the lock.
    pub(crate) fn directory(&self) -> &Arc<Directory> {
        self.writer.directory()
    }

    /// Notes a piece that is being granted.
    pub(crate) fn insert(&mut self, piece: Piece) {
        let slot = self.writer.insert(piece.address, piece.bytes());
        self.pieces.insert(Piece { slot, ..piece });
    }

    pub(crate) fn remove(&mut self, address: u64) -> Option<Piece> {
        let piece = self.pieces.remove(address)?;
        self.writer.remove(piece.slot, address);
        Some(piece)
    }

    /// Makes a granted or cached piece a live block of `bytes`.
    pub(crate) fn give_out(&mut self, address: u64, bytes: usize, order: Order) -> Option<&Piece> {
        let id = self.new_id();
        let piece = self.pieces.get_mut(address)?;
        piece.state = State::Live { asked: bytes, order };
        self.writer.publish(piece.slot, &Block { address, bytes, id, order, tiers: piece.tiers });
        Some(piece)
    }

    fn new_id(&mut self) -> u64 {
        if self.ids.is_empty() {
            let first = NEXT_ID.fetch_add(IDS, Ordering::Relaxed);
            self.ids = first..first + IDS;
        }
        self.ids.start += 1;
        self.ids.start - 1
    }

    /// The live block that starts there.
    pub(crate) fn starting_at(&self, address: u64) -> Option<&Piece> {
        self.pieces.get(address).filter(|piece| piece.is_live())
    }

    /// Makes a live block a cached piece, or changes what is noted in a cached one.
    pub(crate) fn cache(&mut self, address: u64, cached: Cached) {
        let Some(piece) = self.pieces.get_mut(address) else { return };
        piece.state = State::Cached(cached);
        self.writer.unpublish(piece.slot);
    }

    /// What is noted in a cached piece.
    pub(crate) fn cached(&self, address: u64) -> Option<Cached> {
        match self.pieces.get(address)?.state {
            State::Cached(cached) => Some(cached),
            State::Granted | State::Live { .. } => None,
        }
    }

    /// The live block that `address` is in.
    pub(crate) fn around(&self, address: u64) -> Option<Block> {
        self.directory().look_up(address)
    }

    /// All pieces, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter()
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = Block> {
        self.all().filter(|piece| piece.is_live()).filter_map(|piece| self.around(piece.address))
    }

    pub(crate) fn clear(&mut self) {
        for piece in std::mem::take(&mut self.pieces).iter() {
            self.writer.remove(piece.slot, piece.address);
        }
    }

    /// Checks what readers see: a live block at its first byte and its last, and nothing where a piece is not live.
    pub(crate) fn audit(&self) -> Result<(), String> {
        match self.all().find(|piece| !self.is_seen(piece)) {
            Some(piece) => Err(format!("readers see something else than {piece:x?}")),
            None => Ok(()),
        }
    }

    fn is_seen(&self, piece: &Piece) -> bool {
        let ends = [piece.address, piece.address + piece.bytes() - 1].map(|address| self.around(address));
        match ends {
            [Some(first), Some(last)] => first == last && is_of(&first, piece),
            [None, None] => !piece.is_live(),
            _ => false,
        }
    }
}

fn is_of(block: &Block, piece: &Piece) -> bool {
    let state = State::Live { asked: block.bytes, order: block.order };
    (block.address, block.tiers, state) == (piece.address, piece.tiers, piece.state)
}
