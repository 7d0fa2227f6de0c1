//! Blocks that hold what arrived by copies: what is known of each, and which one an address is in.
//!
//! Launches ask for every word of their arguments. A table of bytes says for most of them that no
//! such block is near, without a lock.
//!
//! Invariants: facts are locked for moments, never across a call of the driver or the broker; a
//! block that was freed is in no index, and what still holds it finds it `is_gone`.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use dashmap::DashMap;
use rustc_hash::{FxBuildHasher, FxHashSet};
use wm_dedup::candidates::Candidates;
use wm_dedup::chunk::{CHUNK_BYTES, Fingerprint};
use wm_dedup::readers::{LaunchWindow, ParameterKey};
use wm_driver::{Device, Handle};
use wm_memory::Manager;

use super::graphs;
use wm_dedup::client::Lease;

/// Parameters that a block may be reached by. With more it is left alone.
const MOST_PARAMETERS: usize = 4096;

/// A block, from its first load to its free.
pub(super) struct WatchedBlock {
    pub(super) manager: &'static Manager<Device>,
    pub(super) range: Range<u64>,
    /// As the manager numbers it.
    pub(super) id: u64,
    /// Chunks of it lie in shared memory.
    is_shared: AtomicBool,
    is_gone: AtomicBool,
    facts: Mutex<BlockFacts>,
}

/// What becomes of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkState {
    /// The broker is asked about it.
    Asked,
    /// This process's memory, for others to map: the broker may not know of it yet.
    Given(Option<Lease>),
    /// Memory of another process.
    Taken(Lease),
    /// It could not be shared, and is not tried again.
    Refused,
}

/// What is known of a block.
pub(super) struct BlockFacts {
    pub(super) candidates: Candidates,
    /// Launches since the last fingerprints.
    pub(super) window: LaunchWindow,
    /// Something else wrote since then.
    pub(super) is_void: bool,
    /// Every parameter that pointed here so far.
    pub(super) parameters: FxHashSet<ParameterKey>,
    /// Launches of any graph when the window began, and of each that reaches the block.
    pub(super) graph_launches: u64,
    pub(super) graphs_seen: HashMap<u64, u64>,
    /// By index of the chunk.
    pub(super) prints: BTreeMap<u64, Fingerprint>,
    /// Fingerprints that found nothing changed.
    pub(super) unchanged: u32,
    /// The last load or write.
    pub(super) touched_at: Instant,
    pub(super) chunks: BTreeMap<u64, ChunkState>,
    /// Memory that it shares, by chunk.
    pub(super) handles: BTreeMap<u64, Handle>,
    /// Times that its chunks became private for a write.
    pub(super) copied_back: u32,
    /// It is not shared any more, and why.
    pub(super) left_alone: Option<&'static str>,
}

impl WatchedBlock {
    pub(super) fn facts(&self) -> MutexGuard<'_, BlockFacts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared.load(Relaxed)
    }

    pub(super) fn set_shared(&self, is_shared: bool) {
        self.is_shared.store(is_shared, Relaxed);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    /// The program has it still, by what the manager says, too.
    pub(super) fn lives(&self) -> bool {
        !self.is_gone() && self.manager.block(self.range.start).is_some_and(|block| block.id == self.id)
    }

    pub(super) fn chunk_address(&self, index: u64) -> u64 {
        self.range.start + index * CHUNK_BYTES
    }
}

impl BlockFacts {
    fn new(bytes: u64) -> Self {
        Self {
            candidates: Candidates::new(bytes),
            window: LaunchWindow::new(),
            is_void: false,
            parameters: FxHashSet::default(),
            graph_launches: graphs::launches(),
            graphs_seen: HashMap::new(),
            prints: BTreeMap::new(),
            unchanged: 0,
            touched_at: Instant::now(),
            chunks: BTreeMap::new(),
            handles: BTreeMap::new(),
            copied_back: 0,
            left_alone: None,
        }
    }

    /// Its bytes are about to be others: what was known of them is void.
    pub(super) fn touch(&mut self) {
        self.is_void = true;
        self.prints.clear();
        self.unchanged = 0;
        self.touched_at = Instant::now();
    }

    /// A kernel that is launched has a parameter that points here.
    pub(super) fn note(&mut self, parameter: ParameterKey) {
        self.window.note(parameter);
        self.note_user(parameter);
    }

    /// The same of a kernel that may be launched.
    pub(super) fn note_user(&mut self, parameter: ParameterKey) {
        if self.parameters.insert(parameter) && self.parameters.len() > MOST_PARAMETERS {
            self.left_alone = Some("too many kernels use it");
        }
    }

    /// Leases that it holds; it holds none afterwards.
    pub(super) fn take_leases(&mut self) -> Vec<Lease> {
        let chunks = std::mem::take(&mut self.chunks);
        chunks.into_values().filter_map(ChunkState::lease).collect()
    }
}

impl ChunkState {
    pub(super) fn lease(self) -> Option<Lease> {
        match self {
            Self::Taken(lease) | Self::Given(Some(lease)) => Some(lease),
            Self::Asked | Self::Given(None) | Self::Refused => None,
        }
    }

    pub(super) fn is_shared(self) -> bool {
        matches!(self, Self::Taken(_) | Self::Given(_))
    }
}

/// 1: a watched block was in a stretch of [`CHUNK_BYTES`] whose number ends so.
static NEAR: [AtomicU8; 1 << 17] = [const { AtomicU8::new(0) }; 1 << 17];

type Index = DashMap<u64, Arc<WatchedBlock>, FxBuildHasher>;

/// By every stretch that a block is in. Two blocks that are watched share none: their memory is
/// made of whole chunks.
fn index() -> &'static Index {
    static INDEX: OnceLock<Index> = OnceLock::new();
    INDEX.get_or_init(Index::default)
}

fn stretches(range: &Range<u64>) -> Range<u64> {
    range.start / CHUNK_BYTES..range.end.div_ceil(CHUNK_BYTES)
}

fn near(stretch: u64) -> &'static AtomicU8 {
    &NEAR[stretch as usize & (NEAR.len() - 1)]
}

/// The watched block that an address is in.
#[inline]
pub(super) fn find(address: u64) -> Option<Arc<WatchedBlock>> {
    let stretch = address / CHUNK_BYTES;
    if near(stretch).load(Relaxed) == 0 {
        return None;
    }
    let block = index().get(&stretch)?;
    block.range.contains(&address).then(|| Arc::clone(&block))
}

/// The watched blocks that a range touches.
pub(super) fn within(range: &Range<u64>) -> Vec<Arc<WatchedBlock>> {
    let mut found: Vec<Arc<WatchedBlock>> = Vec::new();
    let mut next = range.start;
    while next < range.end {
        let block = find(next);
        next = block.as_ref().map_or((next / CHUNK_BYTES + 1) * CHUNK_BYTES, |block| block.range.end);
        found.extend(block);
    }
    found
}

/// Watches the block at an address from now on. None: there is none of the manager's, or it is too
/// small to be shared.
pub(super) fn watch(manager: &'static Manager<Device>, address: u64) -> Option<Arc<WatchedBlock>> {
    let block = manager.block(address)?;
    let bytes = block.tiers.total();
    if bytes < CHUNK_BYTES || !block.address.is_multiple_of(CHUNK_BYTES) {
        return None;
    }
    let range = block.address..block.address + bytes;
    let watched = Arc::new(WatchedBlock {
        manager,
        range: range.clone(),
        id: block.id,
        is_shared: AtomicBool::new(false),
        is_gone: AtomicBool::new(false),
        facts: Mutex::new(BlockFacts::new(bytes)),
    });
    for stretch in stretches(&range) {
        index().insert(stretch, Arc::clone(&watched));
        near(stretch).store(1, Relaxed);
    }
    Some(watched)
}

/// The block at an address is no longer the program's.
pub(super) fn forget(address: u64) -> Option<Arc<WatchedBlock>> {
    let block = find(address).filter(|block| block.range.start == address)?;
    block.is_gone.store(true, Relaxed);
    for stretch in stretches(&block.range) {
        index().remove_if(&stretch, |_, there| there.id == block.id);
    }
    Some(block)
}

/// Those of a device, by address.
pub(super) fn of(manager: &'static Manager<Device>) -> Vec<Arc<WatchedBlock>> {
    let mut blocks = all();
    blocks.retain(|block| std::ptr::eq(block.manager, manager));
    blocks
}

/// All of them, by address.
pub(super) fn all() -> Vec<Arc<WatchedBlock>> {
    let starts = index().iter().filter(|entry| *entry.key() == entry.range.start / CHUNK_BYTES);
    let mut all: Vec<_> = starts.map(|entry| Arc::clone(entry.value())).collect();
    all.sort_unstable_by_key(|block| block.range.start);
    all
}
