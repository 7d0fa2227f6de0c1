//! Chunks that are taken and given: behind the closed gate, with nothing in flight.
//!
//! What somebody else has is mapped at addresses of the library's own, compared byte by byte, and takes the chunk's place if it is equal. What nobody has is fingerprinted once more,
//! mapped for reading only, and exported. A chunk with which that fails stays private.

use std::os::fd::OwnedFd;
use std::time::Duration;

use wm_abi::CUresult;
use wm_dedup::chunk::CHUNK_BYTES;
use wm_driver::{Device, Gpu, Handle};
use wm_memory::{Manager, ShareOutcome, Stays};

use super::client::Lease;
use super::judgement::is_ready_chunk;
use super::kernels::ChunkKernels;
use super::mailbox::{self, BackgroundRequest, NamedChunk};
use super::part;
use super::watched::{self, ChunkState, WatchedBlock};
use crate::sockets::descriptor::Descriptor;

/// Chunks that are taken or given in a turn.
pub(super) const EXCHANGED: usize = 16;

/// How long the exchange of all of them may take: no chunk is begun afterwards.
const LIMIT: Duration = Duration::from_millis(4);

/// What chunks are exchanged with.
pub(super) struct ChunkExchange<'a> {
    pub(super) manager: &'static Manager<Device>,
    pub(super) kernels: &'a mut ChunkKernels,
    /// Addresses for memory that is compared, [`EXCHANGED`] chunks.
    pub(super) scratch: u64,
}

/// A chunk that somebody has memory for.
pub(super) struct FoundChunk {
    chunk: NamedChunk,
    lease: Lease,
    handle: Handle,
}

impl ChunkExchange<'_> {
    pub(super) fn import(&self, chunk: NamedChunk, lease: Lease, open: &Descriptor) -> Option<FoundChunk> {
        let handle = open.get().ok().filter(|_| is_ready_chunk(&chunk));
        match handle.and_then(|open| self.manager.gpu().import_handle(open).ok()) {
            Some(handle) => Some(FoundChunk { chunk, lease, handle }),
            None => {
                drop_chunk(&chunk, Some(lease), None);
                None
            }
        }
    }

    /// Compares, and takes what is equal. Bytes that were given up for it.
    pub(super) fn take_found(&mut self, found: Vec<FoundChunk>) -> u64 {
        let equal = match self.compare(&found) {
            Ok(equal) => equal,
            Err(code) => {
                log::info!("shared memory could not be compared: {code}");
                found.iter().for_each(|found| self.refuse(found, ChunkState::Asked));
                return 0;
            }
        };
        let (same, other): (Vec<_>, Vec<_>) = found.into_iter().zip(equal).partition(|(_, equal)| *equal);
        other.into_iter().for_each(|(found, _)| self.refuse(&found, ChunkState::Refused));
        let same: Vec<FoundChunk> = same.into_iter().map(|(found, _)| found).collect();
        let pairs: Vec<(u64, Handle)> =
            same.iter().map(|found| (found.chunk.address(), found.handle)).collect();
        let shared = self.manager.share_chunks(&pairs, LIMIT);
        let mut freed = 0;
        for (found, outcome) in same.into_iter().zip(shared.outcomes) {
            if outcome == ShareOutcome::Shared {
                let block = &found.chunk.block;
                let mut facts = block.facts();
                facts.chunks.insert(found.chunk.index, ChunkState::Taken(found.lease));
                facts.handles.insert(found.chunk.index, found.handle);
                block.set_shared(true);
                freed += CHUNK_BYTES;
            } else {
                self.refuse(&found, ChunkState::Asked);
            }
        }
        freed
    }

    /// It stays private. `as_what`: [`ChunkState::Refused`] for good, else it is asked about again.
    fn refuse(&self, found: &FoundChunk, as_what: ChunkState) {
        let _released = self.manager.gpu().release(found.handle);
        drop_chunk(
            &found.chunk,
            Some(found.lease),
            Some(as_what).filter(|state| *state == ChunkState::Refused),
        );
    }

    fn compare(&mut self, found: &[FoundChunk]) -> Result<Vec<bool>, CUresult> {
        let gpu = self.manager.gpu();
        let place = |at: usize| self.scratch + at as u64 * CHUNK_BYTES;
        let bytes = CHUNK_BYTES as usize;
        let mut mapped = 0;
        let compared = (|| {
            for (at, found) in found.iter().enumerate() {
                gpu.map(place(at), bytes, found.handle)?;
                mapped = at + 1;
            }
            gpu.allow_reading(place(0), mapped * bytes)?;
            let pairs: Vec<_> =
                found.iter().enumerate().map(|(at, found)| (found.chunk.address(), place(at))).collect();
            self.kernels.compare(&pairs)
        })();
        if mapped > 0 {
            gpu.unmap(place(0), mapped * bytes)?;
        }
        compared
    }

    /// Gives chunks away that nobody has, if their bytes still are what they were.
    pub(super) fn give(&mut self, missing: Vec<NamedChunk>) {
        let (ready, other): (Vec<_>, Vec<_>) = missing.into_iter().partition(is_ready_chunk);
        other.iter().for_each(forget);
        let addresses: Vec<u64> = ready.iter().map(NamedChunk::address).collect();
        let prints = self.kernels.fingerprints(&addresses).unwrap_or_default();
        let (same, other): (Vec<_>, Vec<_>) = ready
            .into_iter()
            .enumerate()
            .partition(|(at, chunk)| prints.get(*at) == Some(&chunk.name.fingerprint));
        other.iter().for_each(|(_, chunk)| forget(chunk));
        let same: Vec<NamedChunk> = same.into_iter().map(|(_, chunk)| chunk).collect();
        let addresses: Vec<u64> = same.iter().map(NamedChunk::address).collect();
        let mut open: Vec<(u64, Handle, OwnedFd)> = Vec::new();
        let gpu = self.manager.gpu();
        let given = self.manager.donate_chunks(&addresses, LIMIT, |address, handle| {
            open.push((address, handle, gpu.export(handle)?));
            Ok(())
        });
        let mut offers = Vec::new();
        for (chunk, outcome) in same.into_iter().zip(given.outcomes) {
            let exported = open.iter().position(|(address, ..)| *address == chunk.address());
            match (outcome, exported) {
                (ShareOutcome::Shared, Some(at)) => {
                    let (_, handle, descriptor) = open.swap_remove(at);
                    let mut facts = chunk.block.facts();
                    facts.chunks.insert(chunk.index, ChunkState::Given(None));
                    facts.handles.insert(chunk.index, handle);
                    chunk.block.set_shared(true);
                    drop(facts);
                    offers.push((chunk, descriptor));
                }
                (ShareOutcome::Stays(stays), _) => {
                    log::debug!("a chunk at {:#x} was not given away: {stays:?}", chunk.address());
                    let for_good = !matches!(stays, Stays::InUse | Stays::Busy);
                    drop_chunk(&chunk, None, for_good.then_some(ChunkState::Refused));
                }
                _ => forget(&chunk),
            }
        }
        if !offers.is_empty() {
            mailbox::post(BackgroundRequest::Offer(offers));
        }
    }
}

/// A descriptor of a chunk that is shared, for a broker that starts anew.
pub(super) fn export_chunk(address: u64) -> Option<OwnedFd> {
    let block = watched::find(address)?;
    let handle = block.facts().handles.get(&((address - block.range.start) / CHUNK_BYTES)).copied()?;
    block.manager.gpu().export(handle).ok()
}

pub(super) fn note_offered(chunk: &NamedChunk, lease: Lease) {
    let mut facts = chunk.block.facts();
    match facts.chunks.get_mut(&chunk.index) {
        Some(state) if *state == ChunkState::Given(None) && !chunk.block.is_gone() => {
            *state = ChunkState::Given(Some(lease))
        }
        _ => {
            drop(facts);
            mailbox::post(BackgroundRequest::Release(vec![lease]));
        }
    }
}

/// Others were first: it becomes private, and is looked up again. Where that fails now, [`take_back`] tries again.
pub(super) fn decline(chunk: &NamedChunk) {
    let given = chunk.block.facts().chunks.get(&chunk.index) == Some(&ChunkState::Given(None));
    if given && !chunk.block.is_gone() {
        part::take_back(&chunk.block, chunk.address());
    }
}

/// Takes back what a block has given that nobody knows of, as far as that can be had now. For when nothing is being offered.
pub(super) fn take_back(block: &WatchedBlock) {
    let unknown: Vec<u64> = {
        let facts = block.facts();
        let given = facts.chunks.iter().filter(|(_, state)| **state == ChunkState::Given(None));
        given.map(|(index, _)| block.chunk_address(*index)).collect()
    };
    for address in unknown {
        part::take_back(block, address);
    }
}

/// It is asked about again some time.
pub(super) fn forget(chunk: &NamedChunk) {
    drop_chunk(chunk, None, None);
}

fn drop_chunk(chunk: &NamedChunk, lease: Option<Lease>, becomes: Option<ChunkState>) {
    let mut facts = chunk.block.facts();
    if facts.chunks.get(&chunk.index) == Some(&ChunkState::Asked) {
        match becomes {
            Some(state) => drop(facts.chunks.insert(chunk.index, state)),
            None => drop(facts.chunks.remove(&chunk.index)),
        }
    }
    drop(facts);
    if let Some(lease) = lease {
        mailbox::post(BackgroundRequest::Release(vec![lease]));
    }
}
