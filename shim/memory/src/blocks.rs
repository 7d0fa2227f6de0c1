//! What the program got: every block that is live, cached, or about to become live.
//!
//! A free finds its block by first address with one hash look-up; whoever has met a block before knows its slot. By any
//! address inside, the directory finds the live ones, for readers without the lock.

use std::ops::Range;
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

/// Ids are process-unique although every GPU has a manager of its own, which takes them by the thousand: all threads meet
/// here.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);
const IDS: u64 = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Its memory is set aside; the calls that make it usable are under way.
    Granted,
    Live,
    /// Freed, in the front cache.
    Cached,
}

/// A cache line: a hit or a free looks at one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(64))]
pub(crate) struct Piece {
    pub(crate) address: u64,
    /// As asked for.
    asked: usize,
    order: Order,
    /// Where its bytes are, and with it its size in the ledger.
    pub(crate) tiers: TierBytes,
    state: State,
    /// Alone in its extent, which goes when the block does.
    pub(crate) guarded: bool,
}

impl Piece {
    pub(crate) fn new(address: u64, tiers: TierBytes, guarded: bool) -> Self {
        Self { address, asked: 0, order: Order::Device, tiers, state: State::Granted, guarded }
    }

    /// Size in the ledger.
    pub(crate) fn bytes(&self) -> u64 {
        self.tiers.total()
    }

    /// Its part in what a stream-ordered pool calls used.
    pub(crate) fn pooled(&self) -> u64 {
        match self.order {
            Order::Stream(_) => self.asked as u64,
            Order::Device => 0,
        }
    }
}

const _: () = assert!(size_of::<Piece>() == 64, "a piece is one cache line");

#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// By slot; of those that are not in use, what was there last.
    pieces: Vec<Piece>,
    /// From first address to slot.
    slots: FastMap<u64, u32>,
    editor: Editor,
    ids: Range<u64>,
}

impl Blocks {
    /// For readers without the lock.
    pub(crate) fn directory(&self) -> &Arc<Directory> {
        self.editor.directory()
    }

    /// Notes a piece that is being granted; returns its slot, which is its own until it is removed.
    pub(crate) fn insert(&mut self, piece: Piece) -> u32 {
        let slot = self.editor.enter(piece.address, piece.bytes());
        match self.pieces.get_mut(slot as usize) {
            Some(place) => *place = piece,
            None => self.pieces.push(piece),
        }
        self.slots.insert(piece.address, slot);
        slot
    }

    pub(crate) fn remove(&mut self, address: u64) -> Option<Piece> {
        let slot = self.slots.remove(&address)?;
        self.editor.strike(slot, address);
        self.pieces.get(slot as usize).copied()
    }

    /// Makes a granted or cached piece a live block of `bytes`.
    pub(crate) fn give_out(&mut self, slot: u32, bytes: usize, order: Order) -> Option<&Piece> {
        let id = self.new_id();
        let piece = self.pieces.get_mut(slot as usize)?;
        (piece.asked, piece.order, piece.state) = (bytes, order, State::Live);
        let (address, tiers) = (piece.address, piece.tiers);
        self.editor.show(slot, &Block { address, bytes, id, order, tiers });
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

    /// Makes a live block a cached piece; `None` if none starts there.
    pub(crate) fn take_back(&mut self, address: u64) -> Option<(u32, &Piece)> {
        let slot = *self.slots.get(&address)?;
        let piece = self.pieces.get_mut(slot as usize).filter(|piece| piece.state == State::Live)?;
        piece.state = State::Cached;
        self.editor.hide(slot);
        Some((slot, piece))
    }

    /// The live block that `address` is in.
    pub(crate) fn around(&self, address: u64) -> Option<Block> {
        self.directory().look_up(address)
    }

    /// All pieces, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Piece> {
        self.slots.values().filter_map(|slot| self.pieces.get(*slot as usize))
    }

    pub(crate) fn live(&self) -> impl Iterator<Item = Block> {
        self.all().filter(|piece| piece.state == State::Live).filter_map(|piece| self.around(piece.address))
    }

    pub(crate) fn clear(&mut self) {
        for (address, slot) in self.slots.drain() {
            self.editor.strike(slot, address);
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
            [Some(first), Some(last)] => first == last && piece.state == State::Live && is_of(&first, piece),
            [None, None] => piece.state != State::Live,
            _ => false,
        }
    }
}

fn is_of(block: &Block, piece: &Piece) -> bool {
    (block.address, block.bytes, block.order, block.tiers)
        == (piece.address, piece.asked, piece.order, piece.tiers)
}
