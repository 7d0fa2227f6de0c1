//! Chunks that are taken from other processes and given to them: behind the closed gate, with
//! nothing in flight.
//!
//! Another process's chunk is compared byte by byte with this process's, and takes its place if it
//! is equal. A chunk that another process has, and none has offered, is fingerprinted once more and
//! mapped for reading only. If that fails the chunk stays private; if there was no time, its
//! preparation stays valid.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wm_abi::CUresult;
use wm_dedup::chunk::{CHUNK_BYTES, Fingerprint};
use wm_dedup::client::Lease;
use wm_dedup::policy::tracked_blocks::ChunkState;
use wm_driver::{Device, Handle};
use wm_memory::{BlockChunk, Manager, MoveRefusal, Quiet, ShareOutcome};
use wm_sockets::descriptor::Descriptor;

use super::kernels::ChunkKernels;
use super::mailbox::{BackgroundRequest, NamedChunk, PassReply};
use super::prepared::ChunkToGive;
use super::sharing::Sharing;
use super::to_take::MemoryToTake;
use crate::physical::cache;

/// An exchange of one pass.
pub(super) struct ChunkExchange<'a> {
    sharing: &'a Sharing,
    manager: &'static Manager<Device>,
    until: Instant,
    /// Replies that have to wait for another pass.
    again: Vec<PassReply>,
}

impl<'a> ChunkExchange<'a> {
    /// Exchanges chunks for `limit` after the GPU has compared all of them: other processes may
    /// have its time meanwhile, and the program's work would wait as well. Returns the bytes of
    /// this process's memory that are idle now.
    pub(super) fn run(
        sharing: &'a Sharing,
        manager: &'static Manager<Device>,
        kernels: &mut ChunkKernels,
        replies: Vec<PassReply>,
        limit: Duration,
    ) -> u64 {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        let (equal, prints) = manager.keep_mapped(|| {
            for reply in replies {
                match reply {
                    PassReply::Found(chunk, take) if sharing.is_eligible_chunk(&chunk) => {
                        found.push((chunk, take));
                    }
                    PassReply::Missing(chunk, give) if sharing.is_eligible_chunk(&chunk) => {
                        missing.push((chunk, give));
                    }
                    // The background thread has the time to give its memory back.
                    reply => sharing.mailbox.post(BackgroundRequest::LetGo(reply)),
                }
            }
            let pairs: Vec<_> = found.iter().flat_map(|(chunk, take)| pairs_of(chunk, take)).collect();
            let chunks: Vec<_> = missing.iter().flat_map(|(chunk, _)| chunk.chunks()).collect();
            kernels.compare(&pairs, &chunks).unwrap_or_else(|code| {
                log::info!("chunks could not be compared: {code}");
                Default::default()
            })
        });
        let mut exchange = Self { sharing, manager, until: Instant::now() + limit, again: Vec::new() };
        let freed = exchange.replace_found(found, &equal);
        exchange.give_missing(missing, &prints);
        // Words that reach a block which is shared now are looked at again.
        sharing.recent.changed();
        sharing.mailbox.return_replies(exchange.again);
        freed
    }

    /// Equal chunks get the other processes' memory. The broker is asked again some time about
    /// chunks that the GPU did not compare.
    fn replace_found(&mut self, found: Vec<(NamedChunk, MemoryToTake)>, equal: &[bool]) -> u64 {
        let mut equal: Vec<Option<bool>> = compared(&found, equal);
        for (equal, (chunk, _)) in equal.iter_mut().zip(&found) {
            *equal = equal.filter(|equal| !equal || is_mapped_once(chunk));
        }
        let is_equal = |at: usize| equal[at];
        let pairs: Vec<(BlockChunk, Handle)> = found
            .iter()
            .enumerate()
            .filter(|(at, _)| is_equal(*at) == Some(true))
            .filter_map(|(_, (chunk, take))| Some((chunk.of_block(), take.handle()?)))
            .collect();
        let mut outcomes = self.manager.share_chunks(&pairs, Quiet::Seen, self.left()).outcomes.into_iter();
        let (mut freed, mut done) = (0, Vec::new());
        for (at, (chunk, mut take)) in found.into_iter().enumerate() {
            let state = match is_equal(at) {
                None => None,
                Some(false) => Some(ChunkState::Refused),
                Some(true) => match outcomes.next() {
                    Some(ShareOutcome::Shared) => {
                        note_taken(&chunk, &mut take);
                        freed += chunk.bytes();
                        done.push(take);
                        continue;
                    }
                    Some(outcome) if is_for_later(outcome) => {
                        self.again.push(PassReply::Found(chunk, take));
                        continue;
                    }
                    Some(ShareOutcome::Refused(MoveRefusal::InGraph)) => Some(ChunkState::Refused),
                    _ => None,
                },
            };
            self.sharing.answered(&chunk, Some(take.lease()), state);
            done.push(take);
        }
        if !done.is_empty() {
            self.sharing.mailbox.post(BackgroundRequest::PutBack(done));
        }
        freed
    }

    /// Offers chunks that no process has offered, if their bytes are still the same.
    fn give_missing(&mut self, missing: Vec<(NamedChunk, ChunkToGive)>, prints: &[Fingerprint]) {
        let (mut same, mut prints) = (Vec::new(), prints.iter().copied());
        for (chunk, give) in missing {
            let now: Vec<Fingerprint> = prints.by_ref().take(chunk.block.unit as usize).collect();
            let is_same = Fingerprint::of_chunks(&now) == chunk.name.fingerprint;
            if is_same && is_mapped_once(&chunk) {
                same.push((chunk, give));
                continue;
            }
            self.sharing.forget_question(&chunk);
            // Chunks that the GPU has not looked at contradict nothing.
            if !is_same && now.len() as u64 == chunk.block.unit {
                self.sharing.contradicted(&chunk);
            }
        }
        let chunks: Vec<BlockChunk> = same.iter().map(|(chunk, _)| chunk.of_block()).collect();
        let mut handles: Vec<Handle> = Vec::new();
        let given = self.manager.donate_chunks(&chunks, Quiet::Seen, self.left(), |address, handle| {
            let is_its =
                |(chunk, give): &(NamedChunk, ChunkToGive)| chunk.address() == address && give.is_of(handle);
            // If the block has other memory there now, the descriptor is of no use.
            same.iter().find(|prepared| is_its(prepared)).ok_or(CUresult::INVALID_HANDLE)?;
            handles.push(handle);
            Ok(())
        });
        let (mut handles, mut offers) = (handles.into_iter(), Vec::new());
        for ((chunk, give), outcome) in same.into_iter().zip(given.outcomes) {
            match outcome {
                ShareOutcome::Shared => {
                    handles.next().into_iter().for_each(|handle| note_given(&chunk, handle));
                    offers.push((chunk, give));
                }
                outcome if is_for_later(outcome) => self.again.push(PassReply::Missing(chunk, give)),
                outcome => {
                    log::debug!("a chunk at {:#x} was not given away: {outcome:?}", chunk.address());
                    self.sharing.answered(&chunk, None, Some(ChunkState::Refused));
                }
            }
        }
        if !offers.is_empty() {
            self.sharing.mailbox.post(BackgroundRequest::Offer(offers));
        }
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

/// The chunks that are compared, each with the other process's.
fn pairs_of(chunk: &NamedChunk, take: &MemoryToTake) -> impl Iterator<Item = (u64, u64)> {
    let others = (take.address()..).step_by(CHUNK_BYTES as usize);
    chunk.chunks().zip(others)
}

/// Are all chunks of each equal? `None`: not all were compared.
fn compared(found: &[(NamedChunk, MemoryToTake)], equal: &[bool]) -> Vec<Option<bool>> {
    let mut rest = equal.iter().copied();
    let all = |(chunk, _): &(NamedChunk, MemoryToTake)| {
        let of_it: Vec<bool> = rest.by_ref().take(chunk.block.unit as usize).collect();
        (of_it.len() as u64 == chunk.block.unit).then(|| of_it.into_iter().all(|equal| equal))
    };
    found.iter().map(all).collect()
}

/// A piece's memory may lie where the program has unmapped it as well, for later pieces. Its place
/// is the only one from now on. `false`: the driver has refused to unmap it.
fn is_mapped_once(chunk: &NamedChunk) -> bool {
    cache().make_alone(&(chunk.address()..chunk.address() + chunk.bytes())).is_ok()
}

/// There was no time for it now, or it was in use.
fn is_for_later(outcome: ShareOutcome) -> bool {
    matches!(outcome, ShareOutcome::NotTried | ShareOutcome::Refused(MoveRefusal::InUse | MoveRefusal::Busy))
}

fn note_taken(chunk: &NamedChunk, take: &mut MemoryToTake) {
    let mut facts = chunk.block.facts();
    if let Some(Handle(handle)) = take.handle() {
        facts.shared(chunk.index, ChunkState::Taken { handle, lease: take.lease() });
    }
    take.pass_on();
    chunk.block.set_shared(true);
}

fn note_given(chunk: &NamedChunk, Handle(handle): Handle) {
    chunk.block.facts().shared(chunk.index, ChunkState::Given { handle, lease: None });
    chunk.block.set_shared(true);
}

impl Sharing {
    /// A descriptor of a chunk that is shared, for a broker that starts anew.
    pub(super) fn export_chunk(&self, address: u64) -> Option<Descriptor> {
        let block = self.blocks.find(address)?;
        let give = ChunkToGive::export(block.manager.gpu(), address)?;
        // If the block was freed or written meanwhile, its memory there is private.
        let shared = block.facts().handle(block.chunk_index(address));
        (shared.is_some_and(|handle| give.is_of(Handle(handle))) && !block.is_gone()).then_some(give.open)
    }

    /// The broker knows of a chunk that was given.
    pub(super) fn registered(&self, chunk: &NamedChunk, lease: Lease) {
        if !chunk.block.is_gone() && chunk.block.facts().registered(chunk.index, lease) {
            return;
        }
        // A block that was freed since may be mapped still; any other chunk has its own memory.
        if chunk.block.is_gone() {
            self.mailbox.release_freed(Arc::clone(&chunk.block), vec![lease]);
        } else {
            self.mailbox.release(vec![lease]);
        }
    }

    /// The preparation is not needed: the driver and the broker are told.
    pub(super) fn let_go(&self, reply: PassReply) {
        match reply {
            PassReply::Found(chunk, take) => self.answered(&chunk, Some(take.lease()), None),
            PassReply::Missing(chunk, _) => self.forget_question(&chunk),
        }
    }

    /// The broker is asked about the chunk again some time.
    pub(super) fn forget_question(&self, chunk: &NamedChunk) {
        self.answered(chunk, None, None);
    }

    fn answered(&self, chunk: &NamedChunk, lease: Option<Lease>, state: Option<ChunkState>) {
        chunk.block.facts().answered(chunk.index, state);
        self.mailbox.release(lease.into_iter().collect());
    }
}
