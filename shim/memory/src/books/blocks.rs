//! The program's blocks: every one that is live, cached, or about to become live.
//!
//! By first address, one look at one cache line finds a block. By any address inside, the directory
//! finds the live ones, for readers without the lock.
//!
//! Host memory: 128 to 512 bytes a block, and the memory of the directory.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wm_driver::Tier;

use crate::books::directory::{Directory, DirectoryWriter};
use crate::containers::table::{Keyed, ProbingTable};
use crate::vocabulary::block::Block;
use crate::vocabulary::order::Order;
use crate::vocabulary::tiers::{TierBytes, only};

/// Ids are process-unique although every GPU has a manager of its own, which takes them by the
/// thousand: all threads meet here.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);
const IDS: u64 = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// Its memory is set aside; the calls that make it usable are under way.
    Granted,
    /// Its size as asked for, and the order that it was allocated by.
    Live { asked: usize, order: Order },
    /// Freed, in the free cache.
    Cached(Cached),
}

/// The values that the free cache notes in its blocks.
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
pub(crate) struct BlockRecord {
    pub(crate) address: u64,
    /// Where its bytes are, and with it its size in the ledger.
    pub(crate) tiers: TierBytes,
    state: BlockState,
    /// Its own, in the directory.
    slot: u32,
    /// It has its extent to itself, which is unmapped after the free.
    pub(crate) alone: bool,
    /// A part of it has, or had, memory that other processes use too.
    pub(crate) shared: bool,
    /// It is a piece of the program's, which no call of `cuMemAlloc` made.
    pub(crate) adopted: bool,
}

impl BlockRecord {
    pub(crate) fn new(address: u64, tiers: TierBytes, alone: bool) -> Self {
        Self { address, tiers, state: BlockState::Granted, slot: 0, alone, shared: false, adopted: false }
    }

    /// Size in the ledger.
    pub(crate) fn bytes(&self) -> u64 {
        self.tiers.total()
    }

    /// The block of an adopted piece.
    pub(crate) fn of_piece(address: u64, tiers: TierBytes) -> Self {
        Self { adopted: true, ..Self::new(address, tiers, true) }
    }

    /// Its part in the bytes that a stream-ordered pool calls used.
    pub(crate) fn pooled(&self) -> u64 {
        match self.state {
            BlockState::Live { asked, order: Order::Stream(_) } => asked as u64,
            _ => 0,
        }
    }

    fn is_live(&self) -> bool {
        matches!(self.state, BlockState::Live { .. })
    }

    pub(crate) fn is_cached(&self) -> bool {
        matches!(self.state, BlockState::Cached(_))
    }
}

impl Keyed for BlockRecord {
    type Key = u64;

    fn key(&self) -> u64 {
        self.address
    }
}

const _: () = assert!(size_of::<Option<BlockRecord>>() == 64, "a record is one cache line");

#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// By first address.
    records: ProbingTable<BlockRecord>,
    /// The first addresses in order: those in a range are found without a look at the others. A hit
    /// and a free into the cache change no address.
    addresses: BTreeSet<u64>,
    writer: DirectoryWriter,
    ids: Range<u64>,
}

impl Blocks {
    /// For readers without the lock.
    pub(crate) fn directory(&self) -> &Arc<Directory> {
        self.writer.directory()
    }

    /// Notes a block that is being granted.
    pub(crate) fn insert(&mut self, record: BlockRecord) {
        let slot = self.writer.insert(record.address, record.bytes());
        self.addresses.insert(record.address);
        self.records.insert(BlockRecord { slot, ..record });
    }

    pub(crate) fn remove(&mut self, address: u64) -> Option<BlockRecord> {
        let record = self.records.remove(address)?;
        self.addresses.remove(&address);
        self.writer.remove(record.slot, address);
        Some(record)
    }

    /// Records of which bytes lie in a range, lowest address first.
    pub(crate) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = &BlockRecord> {
        let before = self.addresses.range(..range.start).next_back();
        let found = before.into_iter().chain(self.addresses.range(range.clone()));
        let start = range.start;
        found
            .filter_map(|address| self.records.get(*address))
            .filter(move |record| record.address + record.bytes() > start)
    }

    /// Makes a granted or cached block a live one of `bytes`.
    pub(crate) fn give_out(&mut self, address: u64, bytes: usize, order: Order) -> Option<&BlockRecord> {
        let id = self.new_id();
        let record = self.records.get_mut(address)?;
        record.state = BlockState::Live { asked: bytes, order };
        self.writer.publish(record.slot, &Block { address, bytes, id, order, tiers: record.tiers });
        Some(record)
    }

    fn new_id(&mut self) -> u64 {
        if self.ids.is_empty() {
            let first = NEXT_ID.fetch_add(IDS, Ordering::Relaxed);
            self.ids = first..first + IDS;
        }
        self.ids.start += 1;
        self.ids.start - 1
    }

    /// `bytes` of a piece have moved from one tier to another. Returns the bytes that the piece has
    /// on its tiers now; `None` for one that is not live.
    pub(crate) fn move_to(
        &mut self,
        address: u64,
        bytes: u64,
        [from, to]: [Tier; 2],
    ) -> Option<&BlockRecord> {
        let record = self.records.get_mut(address)?;
        record.tiers.subtract(&only(from, bytes));
        record.tiers.add(&only(to, bytes));
        if !record.is_live() {
            return None;
        }
        self.writer.move_to(record.slot, &record.tiers);
        Some(record)
    }

    /// A part of the live block that starts there gets memory that other processes use too.
    /// `false`: it has its extent to itself, and is no piece.
    pub(crate) fn mark_shared(&mut self, address: u64) -> bool {
        let fits = |record: &&mut BlockRecord| record.is_live() && (!record.alone || record.adopted);
        let record = self.records.get_mut(address).filter(fits);
        record.map(|record| record.shared = true).is_some()
    }

    /// The live block that starts there.
    pub(crate) fn starting_at(&self, address: u64) -> Option<&BlockRecord> {
        self.records.get(address).filter(|record| record.is_live())
    }

    /// Makes a live block a cached one, or changes the values noted in a cached one.
    pub(crate) fn cache(&mut self, address: u64, cached: Cached) {
        let Some(record) = self.records.get_mut(address) else { return };
        record.state = BlockState::Cached(cached);
        self.writer.unpublish(record.slot);
    }

    /// The values noted in a cached block.
    pub(crate) fn cached(&self, address: u64) -> Option<Cached> {
        match self.records.get(address)?.state {
            BlockState::Cached(cached) => Some(cached),
            BlockState::Granted | BlockState::Live { .. } => None,
        }
    }

    /// The live block that `address` is in.
    pub(crate) fn around(&self, address: u64) -> Option<Block> {
        self.directory().look_up(address)
    }

    /// All records, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &BlockRecord> {
        self.records.iter()
    }

    /// The live blocks, without those of pieces.
    pub(crate) fn live(&self) -> impl Iterator<Item = Block> {
        self.all()
            .filter(|record| record.is_live() && !record.adopted)
            .filter_map(|record| self.around(record.address))
    }

    /// Size of the largest live block, as the program asked for it.
    pub(crate) fn largest(&self) -> u64 {
        let live = self.all().filter(|record| record.is_live() && !record.adopted);
        let largest = live.max_by_key(|record| record.bytes());
        largest.and_then(|record| self.around(record.address)).map_or(0, |block| block.bytes as u64)
    }

    /// Live blocks of at least so many bytes, those of pieces included, in no order. The others are
    /// not looked up.
    pub(crate) fn large(&self, least: u64) -> impl Iterator<Item = Block> {
        let large = move |record: &&BlockRecord| record.bytes() >= least && record.is_live();
        self.all().filter(large).filter_map(|record| self.around(record.address))
    }

    pub(crate) fn clear(&mut self) {
        self.addresses.clear();
        for record in std::mem::take(&mut self.records).iter() {
            self.writer.remove(record.slot, record.address);
        }
    }

    /// Checks the answers that readers get: a live block at its first byte and its last, and
    /// nothing where a block is not live. The addresses in order are those of the records.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let ordered = self.all().filter(|record| self.addresses.contains(&record.address)).count();
        if (ordered, ordered) != (self.all().count(), self.addresses.len()) {
            return Err(format!("{ordered} addresses are in order, of {}", self.addresses.len()));
        }
        match self.all().find(|record| !self.is_seen(record)) {
            Some(record) => Err(format!("readers see something else than {record:x?}")),
            None => Ok(()),
        }
    }

    fn is_seen(&self, record: &BlockRecord) -> bool {
        let ends = [record.address, record.address + record.bytes() - 1].map(|address| self.around(address));
        match ends {
            [Some(first), Some(last)] => first == last && is_of(&first, record),
            [None, None] => !record.is_live(),
            _ => false,
        }
    }
}

fn is_of(block: &Block, record: &BlockRecord) -> bool {
    let state = BlockState::Live { asked: block.bytes, order: block.order };
    (block.address, block.tiers, state) == (record.address, record.tiers, record.state)
}
