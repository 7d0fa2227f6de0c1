//! Chunks that are taken and given: behind the closed gate, with nothing in flight.
//!
//! Another process's chunk is compared byte by byte with this one, and takes its place if it is
//! equal. A chunk that no process has offered is fingerprinted once more and mapped for reading
//! only. A chunk with which that fails stays private; one for which there was no time keeps what
//! was prepared for it.

use std::ops::Range;
use std::time::{Duration, Instant};

use wm_abi::CUresult;
use wm_dedup::chunk::{CHUNK_BYTES, Fingerprint};
use wm_driver::{Device, Handle};
use wm_memory::{BlockChunk, Manager, MoveRefusal, Quiet, ShareOutcome};

use super::judgement::is_ready_chunk;
use super::kernels::ChunkKernels;
use super::mailbox::{self, BackgroundRequest, NamedChunk, TurnReply};
use super::part;
use super::prepared::{ChunkToGive, ChunkToTake};
use super::watched::{self, ChunkState, WatchedBlock};
use wm_dedup::client::Lease;
use wm_sockets::descriptor::Descriptor;

/// What the GPU says of chunks for which there are answers, and the time that is left to exchange
/// them.
pub(super) struct ChunkExchange {
    manager: &'static Manager<Device>,
    until: Instant,
    /// Replies that have to wait for another turn.
    again: Vec<TurnReply>,
}

impl ChunkExchange {
    /// Exchanges chunks for `limit` after the GPU was asked about all of them: other processes may
    /// have its time meanwhile, and the program's work would wait as well. Bytes of this process's
    /// memory that are idle now.
    pub(super) fn run(
        manager: &'static Manager<Device>,
        kernels: &mut ChunkKernels,
        replies: Vec<TurnReply>,
        limit: Duration,
    ) -> u64 {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        let (equal, prints) = manager.keep_mapped(|| {
            for reply in replies {
                match reply {
                    TurnReply::Found(chunk, take) if is_ready_chunk(&chunk) => found.push((chunk, take)),
                    TurnReply::Missing(chunk, give) if is_ready_chunk(&chunk) => missing.push((chunk, give)),
                    // What it holds goes where there is time for that.
                    reply => mailbox::post(BackgroundRequest::LetGo(reply)),
                }
            }
            let pairs: Vec<_> = found.iter().map(|(chunk, take)| (chunk.address(), take.address())).collect();
            let chunks: Vec<_> = missing.iter().map(|(chunk, _)| chunk.address()).collect();
            kernels.look(&pairs, &chunks).unwrap_or_else(|code| {
                log::info!("chunks could not be looked at: {code}");
                Default::default()
            })
        });
        let mut exchange = Self { manager, until: Instant::now() + limit, again: Vec::new() };
        let freed = exchange.take(found, &equal);
        exchange.give(missing, &prints);
        mailbox::return_replies(exchange.again);
        freed
    }

    /// Takes what is equal; what the GPU did not compare is asked about again some time.
    fn take(&mut self, found: Vec<(NamedChunk, ChunkToTake)>, equal: &[bool]) -> u64 {
        let is_equal = |at: usize| equal.get(at).copied();
        let pairs: Vec<(BlockChunk, Handle)> = found
            .iter()
            .enumerate()
            .filter(|(at, _)| is_equal(*at) == Some(true))
            .filter_map(|(_, (chunk, take))| Some((chunk.of_block(), take.handle()?)))
            .collect();
        let mut outcomes = self.manager.share_chunks(&pairs, Quiet::Seen, self.left()).outcomes.into_iter();
        let (mut freed, mut done) = (0, Vec::new());
        for (at, (chunk, mut take)) in found.into_iter().enumerate() {
            match is_equal(at) {
                None => drop_chunk(&chunk, Some(take.lease), None),
                Some(false) => drop_chunk(&chunk, Some(take.lease), Some(ChunkState::Refused)),
                Some(true) => match outcomes.next() {
                    Some(ShareOutcome::Shared) => {
                        note_taken(&chunk, &mut take);
                        freed += CHUNK_BYTES;
                    }
                    Some(outcome) if is_for_later(outcome) => {
                        self.again.push(TurnReply::Found(chunk, take));
                        continue;
                    }
                    _ => drop_chunk(&chunk, Some(take.lease), None),
                },
            }
            done.push(take);
        }
        if !done.is_empty() {
            mailbox::post(BackgroundRequest::PutBack(done));
        }
        freed
    }

    /// Offers chunks that no process has offered, if their bytes still are what they were.
    fn give(&mut self, missing: Vec<(NamedChunk, ChunkToGive)>, prints: &[Fingerprint]) {
        let (same, other): (Vec<_>, Vec<_>) = missing
            .into_iter()
            .enumerate()
            .partition(|(at, (chunk, _))| prints.get(*at) == Some(&chunk.name.fingerprint));
        other.iter().for_each(|(_, (chunk, _))| forget(chunk));
        let same: Vec<(NamedChunk, ChunkToGive)> = same.into_iter().map(|(_, chunk)| chunk).collect();
        let chunks: Vec<BlockChunk> = same.iter().map(|(chunk, _)| chunk.of_block()).collect();
        let mut handles: Vec<Handle> = Vec::new();
        let given = self.manager.donate_chunks(&chunks, Quiet::Seen, self.left(), |address, handle| {
            let is_its =
                |(chunk, give): &(NamedChunk, ChunkToGive)| chunk.address() == address && give.is_of(handle);
            // The block has other memory there than it had: what stands for that is no use.
            same.iter().find(|prepared| is_its(prepared)).ok_or(CUresult::INVALID_HANDLE)?;
            handles.push(handle);
            Ok(())
        });
        let (mut handles, mut offers) = (handles.into_iter(), Vec::new());
        for ((chunk, give), outcome) in same.into_iter().zip(given.outcomes) {
            match outcome {
                ShareOutcome::Shared => {
                    note_given(&chunk, handles.next());
                    offers.push((chunk, give));
                }
                outcome if is_for_later(outcome) => self.again.push(TurnReply::Missing(chunk, give)),
                outcome => {
                    log::debug!("a chunk at {:#x} was not given away: {outcome:?}", chunk.address());
                    drop_chunk(&chunk, None, Some(ChunkState::Refused));
                }
            }
        }
        if !offers.is_empty() {
            mailbox::post(BackgroundRequest::Offer(offers));
        }
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

/// There was no time for it now, or it was in use.
fn is_for_later(outcome: ShareOutcome) -> bool {
    matches!(outcome, ShareOutcome::NotTried | ShareOutcome::Refused(MoveRefusal::InUse | MoveRefusal::Busy))
}

fn note_taken(chunk: &NamedChunk, take: &mut ChunkToTake) {
    let mut facts = chunk.block.facts();
    facts.chunks.insert(chunk.index, ChunkState::Taken(take.lease));
    facts.handles.extend(take.handle().map(|handle| (chunk.index, handle)));
    take.pass_on();
    chunk.block.set_shared(true);
}

fn note_given(chunk: &NamedChunk, handle: Option<Handle>) {
    let mut facts = chunk.block.facts();
    facts.chunks.insert(chunk.index, ChunkState::Given(None));
    facts.handles.extend(handle.map(|handle| (chunk.index, handle)));
    chunk.block.set_shared(true);
}

/// A descriptor of a chunk that is shared, for a broker that starts anew.
pub(super) fn export_chunk(address: u64) -> Option<Descriptor> {
    let block = watched::find(address)?;
    let index = (address - block.range.start) / CHUNK_BYTES;
    let give = ChunkToGive::export(block.manager.gpu(), address)?;
    let facts = block.facts();
    // If the block was freed or written meanwhile, its memory there is private.
    let is_shared = facts.chunks.get(&index).is_some_and(|state| state.is_shared());
    let is_its = facts.handles.get(&index).is_some_and(|handle| give.is_of(*handle));
    (is_shared && is_its && !block.is_gone()).then_some(give.open)
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

/// Makes a block's chunks private again that were given and not registered, because others were
/// first or there is no broker, as far as possible now. To be called while nothing is being
/// offered. `false`: there is nothing.
pub(super) fn take_back(block: &WatchedBlock, limit: Duration) -> bool {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (index, state) in &block.facts().chunks {
        if *state == ChunkState::Given(None) {
            let chunk = block.chunk_address(*index)..block.chunk_address(*index + 1);
            match runs.last_mut().filter(|run| run.end == chunk.start) {
                Some(run) => run.end = chunk.end,
                None => runs.push(chunk),
            }
        }
    }
    let is_any = !runs.is_empty();
    let until = Instant::now() + limit;
    for run in runs {
        let left = until.saturating_duration_since(Instant::now());
        // With any time at all, a run begins one chunk.
        if left.is_zero() {
            break;
        }
        part::take_back(block, run, left);
    }
    is_any
}

/// What was prepared is not needed: the driver and the broker are told.
pub(super) fn let_go(reply: TurnReply) {
    match reply {
        TurnReply::Found(chunk, take) => drop_chunk(&chunk, Some(take.lease), None),
        TurnReply::Missing(chunk, _) => forget(&chunk),
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
