//! What turns and the background thread hand each other: questions for the broker, and its answers.
//!
//! Invariant: the lock is held for moments. A chunk that is asked about is in one place: a request,
//! the thread's hands, or a reply.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use wm_dedup::chunk::ChunkName;
use wm_driver::Device;
use wm_memory::{BlockChunk, Manager};

use super::prepared::{ChunkToGive, ChunkToTake};
use super::watched::WatchedBlock;
use wm_dedup::client::Lease;

/// A chunk of a block, and the name that its bytes had.
pub(super) struct NamedChunk {
    pub(super) block: Arc<WatchedBlock>,
    pub(super) index: u64,
    pub(super) name: ChunkName,
}

impl NamedChunk {
    pub(super) fn address(&self) -> u64 {
        self.block.chunk_address(self.index)
    }

    pub(super) fn of_block(&self) -> BlockChunk {
        BlockChunk { address: self.address(), block: self.block.id }
    }
}

/// For the background thread.
pub(super) enum BackgroundRequest {
    /// These are this process's, mapped for reading only.
    Offer(Vec<(NamedChunk, ChunkToGive)>),
    /// Names of what could be shared: how many there are of each is to be counted, and nothing else
    /// done.
    Count(Vec<ChunkName>),
    /// A turn needs these no longer.
    PutBack(Vec<ChunkToTake>),
    /// The same, of what could not be exchanged.
    LetGo(TurnReply),
    /// These are used no longer.
    Release(Vec<Lease>),
    /// So many bytes of a device were freed by sharing, and are for other processes.
    GiveBack(&'static Manager<Device>, u64),
}

/// For the next turn.
pub(super) enum TurnReply {
    /// Another process has memory that may hold the same bytes.
    Found(NamedChunk, ChunkToTake),
    /// No process has: this one's could be the first.
    Missing(NamedChunk, ChunkToGive),
}

#[derive(Default)]
struct Mail {
    requests: VecDeque<BackgroundRequest>,
    replies: VecDeque<TurnReply>,
    /// Offers that the broker has not answered.
    offers: usize,
}

static MAIL: Mutex<Option<Mail>> = Mutex::new(None);

static POSTED: Condvar = Condvar::new();

fn mail() -> MutexGuard<'static, Option<Mail>> {
    MAIL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with<T>(change: impl FnOnce(&mut Mail) -> T) -> T {
    change(mail().get_or_insert_with(Mail::default))
}

/// For the background thread, which is woken.
pub(super) fn post(request: BackgroundRequest) {
    with(|mail| {
        mail.offers += usize::from(matches!(request, BackgroundRequest::Offer(_)));
        mail.requests.push_back(request);
    });
    POSTED.notify_one();
}

/// The next request; waits for one, but no longer than `limit`.
pub(super) fn next(limit: Duration) -> Option<BackgroundRequest> {
    let is_empty = |mail: &mut Option<Mail>| mail.as_ref().is_none_or(|mail| mail.requests.is_empty());
    let (mut mail, _) =
        POSTED.wait_timeout_while(mail(), limit, is_empty).unwrap_or_else(PoisonError::into_inner);
    mail.as_mut()?.requests.pop_front()
}

pub(super) fn reply(replies: impl IntoIterator<Item = TurnReply>) {
    with(|mail| mail.replies.extend(replies));
}

/// Replies for a turn, the oldest first, and no more than `most`.
pub(super) fn take_replies(most: usize) -> Vec<TurnReply> {
    with(|mail| {
        let count = most.min(mail.replies.len());
        mail.replies.drain(..count).collect()
    })
}

/// A turn had no time for these: they are the first of the next one.
pub(super) fn return_replies(replies: Vec<TurnReply>) {
    with(|mail| replies.into_iter().rev().for_each(|reply| mail.replies.push_front(reply)));
}

/// How many there are for a turn.
pub(super) fn replies() -> usize {
    mail().as_ref().map_or(0, |mail| mail.replies.len())
}

/// An offer was answered, and what that is was noted.
pub(super) fn offered() {
    with(|mail| mail.offers = mail.offers.saturating_sub(1));
}

/// Is the broker about to learn of memory?
pub(super) fn is_offering() -> bool {
    mail().as_ref().is_some_and(|mail| mail.offers > 0)
}
