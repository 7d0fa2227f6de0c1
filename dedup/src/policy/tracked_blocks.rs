//! The facts about a tracked block: which bytes arrived by copies, which kernels may use it, and
//! which of its chunks are shared.
//!
//! A block is tracked from its first copy to its free. Each fact is told here by an event; the
//! answers are plain values, and [`super::eligibility`] decides from them.
//!
//! Invariant: a fingerprint belongs to bytes that no known write has reached since.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use rustc_hash::FxHashSet;

use crate::candidates::Candidates;
use crate::chunk::{CHUNK_BYTES, Fingerprint};
use crate::client::Lease;
use crate::readers::ParameterKey;

/// Parameters that may point into a block. A block with more is excluded.
const MOST_PARAMETERS: usize = 4096;

/// Private copies for writes until a block is excluded.
const MOST_PRIVATE_COPIES: u32 = 2;

/// When a write or a kernel runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UseTime {
    /// With the call that is being made.
    Now,
    /// At every launch of a graph that is being made.
    InGraph,
}

/// The answer to a call that is about to write a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteAnswer {
    /// The block's memory is private: the call goes on.
    Proceed,
    /// The block needs a private copy before the call.
    CopyNow,
    /// The block needs a private copy before the next graph is made or launched.
    CopyBeforeGraph,
}

impl WriteAnswer {
    /// For a block that has shared chunks, or none.
    pub fn to(time: UseTime, is_shared: bool) -> Self {
        match (is_shared, time) {
            (false, _) => Self::Proceed,
            (true, UseTime::Now) => Self::CopyNow,
            (true, UseTime::InGraph) => Self::CopyBeforeGraph,
        }
    }
}

/// Why a block is not shared for the rest of its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclusion {
    /// More kernels may use it than are remembered.
    ManyKernels,
    /// It was shared and written several times.
    RepeatedWrites,
    /// A copy or a memset in a graph writes it.
    GraphWrites,
    /// A kernel in a graph may write it, and it was shared then.
    GraphMayWrite,
    /// Device memory has its address, and a kernel may write through it.
    StoredAddress,
    /// The program uses its memory in another way than by its address.
    Unmapped,
}

impl Exclusion {
    /// In words, for the statistics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::ManyKernels => "too many kernels use it",
            Self::RepeatedWrites => "it is written again and again",
            Self::GraphWrites => "a graph writes it",
            Self::GraphMayWrite => "a graph may write it",
            Self::StoredAddress => "its address was copied to the device",
            Self::Unmapped => "the program unmaps it, or passes it on",
        }
    }
}

/// The state of a chunk. `handle` is the number of its physical memory, as the driver has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkState {
    /// The broker is asked about it.
    Asked,
    /// No other process has the bytes. It stays as it is until one has.
    Waiting {
        /// By which the broker knows that this process waits.
        lease: Lease,
    },
    /// This process's memory, for others to map. Without a lease the broker may not know of it.
    Given {
        /// Of the memory.
        handle: u64,
        /// This process's own use.
        lease: Option<Lease>,
    },
    /// Memory of another process.
    Taken {
        /// Of the memory.
        handle: u64,
        /// This process's use.
        lease: Lease,
    },
    /// It was shared, and no other process maps the memory any more. It can be read only until it
    /// is taken back.
    Lone {
        /// Of the memory.
        handle: u64,
    },
    /// It could not be shared, and is not tried again.
    Refused,
}

impl ChunkState {
    /// The lease that comes with it.
    pub fn lease(self) -> Option<Lease> {
        match self {
            Self::Taken { lease, .. } | Self::Waiting { lease } => Some(lease),
            Self::Given { lease, .. } => lease,
            Self::Asked | Self::Lone { .. } | Self::Refused => None,
        }
    }

    /// The shared memory behind the chunk; `None` if the chunk is private.
    pub fn handle(self) -> Option<u64> {
        match self {
            Self::Taken { handle, .. } | Self::Given { handle, .. } | Self::Lone { handle } => Some(handle),
            Self::Asked | Self::Waiting { .. } | Self::Refused => None,
        }
    }

    fn is_waiting(self) -> bool {
        matches!(self, Self::Waiting { .. })
    }
}

/// Bytes of a block, for the statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockUsage {
    /// In chunks that arrived by copies.
    pub candidates: u64,
    /// In memory that several processes map or have mapped: a write there needs a copy first.
    pub shared: u64,
    /// In another process's memory.
    pub saved: u64,
}

/// See above.
#[derive(Debug)]
pub struct BlockFacts {
    /// The bytes that arrived by copies.
    pub candidates: Candidates,
    /// Every parameter that pointed here so far.
    pub(super) parameters: FxHashSet<ParameterKey>,
    /// By index of the chunk; none since the last write that a call made.
    pub(super) fingerprints: BTreeMap<u64, Fingerprint>,
    /// Fingerprints in a row that found every byte unchanged.
    pub(super) unchanged: u32,
    /// The last copy or write.
    pub(super) written_at: Instant,
    chunks: BTreeMap<u64, ChunkState>,
    /// Leases that wait for bytes which the block does not have any more.
    withdrawn: Vec<Lease>,
    private_copies: u32,
    exclusion: Option<Exclusion>,
    /// Chunks that one physical memory has: they are shared together, under the index of the first.
    pub(super) unit: u64,
}

impl BlockFacts {
    /// Of a block of `bytes` bytes that is tracked from now on.
    pub fn new(bytes: u64, now: Instant) -> Self {
        Self {
            candidates: Candidates::new(bytes),
            parameters: FxHashSet::default(),
            fingerprints: BTreeMap::new(),
            unchanged: 0,
            written_at: now,
            chunks: BTreeMap::new(),
            withdrawn: Vec::new(),
            private_copies: 0,
            exclusion: None,
            unit: 1,
        }
    }

    /// Of a block that is one physical memory of `bytes` bytes: all of it is shared, or nothing.
    pub fn of_one_memory(bytes: u64, now: Instant) -> Self {
        Self { unit: (bytes / CHUNK_BYTES).max(1), ..Self::new(bytes, now) }
    }

    /// A call is about to write the block: its fingerprints are void.
    pub fn overwritten(&mut self, now: Instant) {
        self.fingerprints.clear();
        self.wait_no_longer(|_| true);
        self.unchanged = 0;
        self.written_at = now;
    }

    /// A kernel has a parameter that points here. Returns `true` for the first time.
    pub fn used_by(&mut self, parameter: ParameterKey) -> bool {
        let is_new = self.parameters.insert(parameter);
        if is_new && self.parameters.len() > MOST_PARAMETERS {
            self.exclude(Exclusion::ManyKernels);
        }
        is_new
    }

    /// The block becomes private for a write.
    pub fn count_private_copy(&mut self) {
        self.private_copies += 1;
        if self.private_copies >= MOST_PRIVATE_COPIES {
            self.exclude(Exclusion::RepeatedWrites);
        }
    }

    /// The block is not shared again.
    pub fn exclude(&mut self, why: Exclusion) {
        self.exclusion = Some(why);
        self.wait_no_longer(|_| true);
    }

    /// Why the block is not shared.
    pub fn exclusion(&self) -> Option<Exclusion> {
        self.exclusion
    }

    /// The last fingerprints of what can be shared, ascending by index.
    pub fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> {
        self.named().map(|(_, fingerprint)| fingerprint)
    }

    /// At most `room` chunks about which the broker was not asked yet; it is asked from now on.
    pub fn ask(&mut self, room: usize) -> Vec<(u64, Fingerprint)> {
        let open = self.named().filter(|(index, _)| !self.chunks.contains_key(index));
        let open: Vec<_> = open.take(room).collect();
        self.chunks.extend(open.iter().map(|(index, _)| (*index, ChunkState::Asked)));
        open
    }

    /// Ends the question about a chunk: with a new state, or so that it is asked about again. Any
    /// other state stays.
    pub fn answered(&mut self, index: u64, state: Option<ChunkState>) {
        if self.chunks.get(&index) == Some(&ChunkState::Asked) {
            match state {
                Some(state) => drop(self.chunks.insert(index, state)),
                None => drop(self.chunks.remove(&index)),
            }
        }
    }

    /// No other process has the bytes of a chunk about which the broker was asked. If the chunk has
    /// other bytes by now, the lease is [withdrawn](Self::withdrawn).
    pub fn waits(&mut self, index: u64, name: Fingerprint, lease: Lease) {
        let is_current = self.name(index) == Some(name) && self.exclusion.is_none();
        if is_current && self.chunks.get(&index) == Some(&ChunkState::Asked) {
            self.chunks.insert(index, ChunkState::Waiting { lease });
        } else {
            self.answered(index, None);
            self.withdrawn.push(lease);
        }
    }

    /// Other processes have the bytes of some names: the chunks that wait for one are asked about
    /// again.
    pub fn arrived(&mut self, has_come: impl Fn(Fingerprint) -> bool) {
        let names: BTreeMap<u64, Fingerprint> = self.named().collect();
        self.wait_no_longer(|index| names.get(&index).is_none_or(|name| has_come(*name)));
    }

    /// Leases that wait for nothing any more, each once.
    pub fn withdrawn(&mut self) -> Vec<Lease> {
        std::mem::take(&mut self.withdrawn)
    }

    /// Some of the chunks that wait do so no longer.
    pub(super) fn wait_no_longer(&mut self, which: impl Fn(u64) -> bool) {
        let ended = self.chunks.extract_if(.., |index, state| state.is_waiting() && which(*index));
        self.withdrawn.extend(ended.filter_map(|(_, state)| state.lease()));
    }

    /// A chunk lies in shared memory now.
    pub fn shared(&mut self, index: u64, state: ChunkState) {
        self.chunks.insert(index, state);
    }

    /// The broker knows of a chunk that was given. Returns `false` if the chunk is private again.
    pub fn registered(&mut self, index: u64, new: Lease) -> bool {
        match self.chunks.get_mut(&index) {
            Some(ChunkState::Given { lease, .. }) if lease.is_none() => {
                *lease = Some(new);
                true
            }
            _ => false,
        }
    }

    /// The shared memory behind a chunk.
    pub fn handle(&self, index: u64) -> Option<u64> {
        self.chunks.get(&index).copied().and_then(ChunkState::handle)
    }

    /// Runs of chunks that were given and not registered, by index.
    pub fn unregistered(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (index, state) in &self.chunks {
            if matches!(state, ChunkState::Given { lease: None, .. }) {
                match runs.last_mut().filter(|run| run.end == *index) {
                    Some(run) => run.end += 1,
                    None => runs.push(*index..*index + 1),
                }
            }
        }
        runs
    }

    /// Forgets memory that is private again. Returns the number of its chunks and the leases that
    /// it held.
    pub fn became_private(&mut self, is_shared: impl Fn(u64) -> bool) -> (usize, Vec<Lease>) {
        let (mut leases, before) = (Vec::new(), self.chunks.len());
        self.chunks.retain(|index, state| {
            let stays = state.handle().is_none() || is_shared(*index);
            leases.extend(if stays { None } else { state.lease() });
            stays
        });
        ((before - self.chunks.len()) * self.unit as usize, leases)
    }

    /// The program frees the block. Returns the leases that it held.
    pub fn freed(&mut self) -> Vec<Lease> {
        let held = std::mem::take(&mut self.chunks).into_values().filter_map(ChunkState::lease);
        held.chain(self.withdrawn()).collect()
    }

    /// For the statistics.
    pub fn usage(&self) -> BlockUsage {
        let bytes = |count: usize| count as u64 * self.unit * CHUNK_BYTES;
        let states = || self.chunks.values();
        BlockUsage {
            candidates: self.candidates.chunks().count() as u64 * CHUNK_BYTES,
            shared: bytes(states().filter(|state| state.handle().is_some()).count()),
            saved: bytes(states().filter(|state| matches!(state, ChunkState::Taken { .. })).count()),
        }
    }
}

mod lone;
mod names;

#[cfg(test)]
mod tests;
