//! Messages between the passes and the background thread: requests for the broker, and its replies.
//!
//! Invariant: the lock is held for moments. A chunk that is asked about is in one place: a request,
//! the background thread, or a reply.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use wm_dedup::chunk::{CHUNK_BYTES, ChunkName};
use wm_driver::{Device, lock};
use wm_memory::{BlockChunk, Manager};

use super::prepared::ChunkToGive;
use super::to_take::MemoryToTake;
use super::tracked_blocks::TrackedBlock;
use wm_dedup::client::Lease;

/// A chunk of a block, or all chunks of a piece, and the name that the bytes had.
pub(super) struct NamedChunk {
    pub(super) block: Arc<TrackedBlock>,
    pub(super) index: u64,
    pub(super) name: ChunkName,
}

impl NamedChunk {
    pub(super) fn address(&self) -> u64 {
        self.block.chunk_address(self.index)
    }

    /// The addresses of all chunks that are shared with it.
    pub(super) fn chunks(&self) -> impl Iterator<Item = u64> {
        (self.index..self.index + self.block.unit).map(|index| self.block.chunk_address(index))
    }

    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> u64 {
        self.block.unit * CHUNK_BYTES
    }

    pub(super) fn of_block(&self) -> BlockChunk {
        BlockChunk { address: self.address(), block: self.block.id }
    }
}

/// For the background thread.
pub(super) enum BackgroundRequest {
    /// These are this process's, mapped for reading only.
    Offer(Vec<(NamedChunk, ChunkToGive)>),
    /// Names of chunks that could be shared. The broker only counts the copies of each.
    Count(Vec<ChunkName>),
    /// A pass needs these no longer.
    PutBack(Vec<MemoryToTake>),
    /// The same, of a chunk that could not be exchanged.
    LetGo(PassReply),
    /// These are used no longer.
    Release(Vec<Lease>),
    /// The program frees a block with these. They are over once its memory is not mapped any more.
    Freed(Arc<TrackedBlock>, Vec<Lease>),
    /// A launch waits for verdicts about its kernel.
    Judge,
    /// So many bytes of a device were freed by sharing, and are for other processes.
    GiveBack(&'static Manager<Device>, u64),
}

/// For the next pass.
pub(super) enum PassReply {
    /// Another process has memory that may hold the same bytes.
    Found(NamedChunk, MemoryToTake),
    /// Another process has the same bytes, and none has given its memory: this one's could be the
    /// first.
    Missing(NamedChunk, ChunkToGive),
}

/// The messages that wait.
struct Mail {
    requests: VecDeque<BackgroundRequest>,
    replies: VecDeque<PassReply>,
    /// Offers that the broker has not answered.
    offers: usize,
}

/// See above.
pub(super) struct Mailbox {
    mail: Mutex<Mail>,
    posted: Condvar,
}

impl Mailbox {
    pub(super) const fn new() -> Self {
        let mail = Mail { requests: VecDeque::new(), replies: VecDeque::new(), offers: 0 };
        Self { mail: Mutex::new(mail), posted: Condvar::new() }
    }

    fn mail(&self) -> MutexGuard<'_, Mail> {
        lock(&self.mail)
    }

    /// For the background thread, which is woken.
    pub(super) fn post(&self, request: BackgroundRequest) {
        let mut mail = self.mail();
        mail.offers += usize::from(matches!(request, BackgroundRequest::Offer(_)));
        mail.requests.push_back(request);
        drop(mail);
        self.posted.notify_one();
    }

    /// Leases that no chunk uses any more, for the broker.
    pub(super) fn release(&self, leases: Vec<Lease>) {
        if !leases.is_empty() {
            self.post(BackgroundRequest::Release(leases));
        }
    }

    /// The same, of a block that is freed or about to be: work may be reading its memory still, and
    /// another process must not take that for its own meanwhile.
    pub(super) fn release_freed(&self, block: Arc<TrackedBlock>, leases: Vec<Lease>) {
        if !leases.is_empty() {
            self.post(BackgroundRequest::Freed(block, leases));
        }
    }

    /// The next request; waits for one, but no longer than `limit`.
    pub(super) fn next_request(&self, limit: Duration) -> Option<BackgroundRequest> {
        let is_empty = |mail: &mut Mail| mail.requests.is_empty();
        let waited = self.posted.wait_timeout_while(self.mail(), limit, is_empty);
        let (mut mail, _) = waited.unwrap_or_else(PoisonError::into_inner);
        mail.requests.pop_front()
    }

    pub(super) fn reply(&self, replies: impl IntoIterator<Item = PassReply>) {
        self.mail().replies.extend(replies);
    }

    /// The oldest replies, at most so many, with at most so many chunks.
    pub(super) fn oldest_replies(&self, most: usize, most_chunks: usize) -> Vec<PassReply> {
        let mut mail = self.mail();
        let mut chunks = 0_usize;
        let fits = |reply: &&PassReply| {
            chunks = chunks.saturating_add(reply.count());
            chunks <= most_chunks
        };
        let count = mail.replies.iter().take(most).take_while(fits).count();
        mail.replies.drain(..count).collect()
    }

    /// A pass had no time for these: they are the first of the next one.
    pub(super) fn return_replies(&self, replies: Vec<PassReply>) {
        let mut mail = self.mail();
        replies.into_iter().rev().for_each(|reply| mail.replies.push_front(reply));
    }

    /// Replies that wait for a pass.
    pub(super) fn replies(&self) -> usize {
        self.mail().replies.len()
    }

    /// Chunks in these replies.
    pub(super) fn reply_chunks(&self) -> usize {
        self.mail().replies.iter().map(PassReply::count).sum()
    }

    /// The broker answered an offer, and the blocks know the answer.
    pub(super) fn offered(&self) {
        let mut mail = self.mail();
        mail.offers = mail.offers.saturating_sub(1);
    }

    /// Is the broker about to learn of memory?
    pub(super) fn is_offering(&self) -> bool {
        self.mail().offers > 0
    }
}

impl PassReply {
    /// Chunks that the GPU has to look at.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Found(chunk, _) | Self::Missing(chunk, _) => chunk.block.unit as usize,
        }
    }
}
