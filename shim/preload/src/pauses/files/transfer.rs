//! Copies of chunks between the device and files or segments, by several threads.
//!
//! A thread takes the next chunk as soon as it is done with one, also while more are still being
//! found: memory that comes back is mapped by one thread and filled by the others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};

use wm_abi::CUdevice;
use wm_driver::staging::StagingBuffer;
use wm_driver::{Device, lock, thread};
use wm_memory::{BorrowedMemory, Manager};

use super::chunks::{CHUNK, FileChunk, FileFailure, FileProgress, StoredMemory};
use crate::{process, registry};

/// Threads that copy and write files.
pub(super) const THREADS: usize = 4;

/// The most threads that copy at all. The link is several times as fast as one processor copies
/// within memory.
const MOST: usize = 8;

/// Stack of a thread, bytes.
const STACK: usize = 256 << 10;

/// Which threads transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pauses) enum Transferring {
    /// The thread that carries requests out, and others. They end when the process exits.
    Usual,
    /// A thread of the program's, alone: the library's own make no call of the driver at exit.
    AtExit,
}

/// The transfers of one step. The pinned buffer of each thread is kept for the next transfer: the
/// driver takes time to pin memory.
pub(in crate::pauses) struct Transfers<'a> {
    progress: &'a FileProgress,
    how: Transferring,
    buffers: Mutex<Vec<StagingBuffer>>,
}

/// The chunks that wait for a thread.
pub(super) struct ChunkFeed {
    chunks: Mutex<WaitingChunks>,
    changed: Condvar,
}

struct WaitingChunks {
    waiting: VecDeque<(CUdevice, FileChunk)>,
    /// No more come.
    is_closed: bool,
}

impl ChunkFeed {
    fn new() -> Self {
        let chunks = WaitingChunks { waiting: VecDeque::new(), is_closed: false };
        Self { chunks: Mutex::new(chunks), changed: Condvar::new() }
    }

    /// The chunks of a memory, from now on.
    pub(super) fn add(&self, memory: &StoredMemory) {
        let mut chunks = lock(&self.chunks);
        chunks.waiting.extend(memory.chunks.iter().map(|chunk| (memory.device, *chunk)));
        drop(chunks);
        self.changed.notify_all();
    }

    fn close(&self) {
        lock(&self.chunks).is_closed = true;
        self.changed.notify_all();
    }

    /// The next one; waits for it. `None`: no more come.
    fn next(&self) -> Option<(CUdevice, FileChunk)> {
        let is_awaited = |chunks: &mut WaitingChunks| chunks.waiting.is_empty() && !chunks.is_closed;
        let waited = self.changed.wait_while(lock(&self.chunks), is_awaited);
        waited.unwrap_or_else(PoisonError::into_inner).waiting.pop_front()
    }
}

/// The other threads end, whatever becomes of the one that feeds them.
struct Closing<'a>(&'a ChunkFeed);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<'a> Transfers<'a> {
    pub(in crate::pauses) fn new(progress: &'a FileProgress, how: Transferring) -> Self {
        Self { progress, how, buffers: Mutex::default() }
    }

    /// Carries out `one` for each chunk of memory. The first error ends it. What was freed is left
    /// out: frees pass while the process is paused.
    pub(in crate::pauses) fn of(
        &self,
        memory: &[StoredMemory],
        one: impl Fn(&Manager<Device>, &mut StagingBuffer, &FileChunk) -> Result<(), FileFailure> + Sync,
    ) -> Result<(), FileFailure> {
        let borrowed = borrowed();
        let is_there = |one: &&StoredMemory| {
            borrowed.iter().any(|(device, memory)| *device == one.device && memory.has(one.address))
        };
        let memory: Vec<&StoredMemory> = memory.iter().filter(is_there).collect();
        self.progress.begin(memory.iter().flat_map(|one| &one.chunks).map(|chunk| chunk.bytes).sum());
        self.fed(|feed| memory.into_iter().for_each(|one| feed.add(one)), one)
    }

    /// The same for the chunks that `find` adds. They stay mapped until all is over.
    pub(super) fn fed(
        &self,
        find: impl FnOnce(&ChunkFeed),
        one: impl Fn(&Manager<Device>, &mut StagingBuffer, &FileChunk) -> Result<(), FileFailure> + Sync,
    ) -> Result<(), FileFailure> {
        let _borrowed = borrowed();
        let (feed, failure, ends) = (ChunkFeed::new(), Mutex::new(None), AtomicBool::new(false));
        let work = || {
            let goes_on = || (self.how == Transferring::AtExit || !process::exiting()) && !ends.load(Relaxed);
            let done = self.each(&feed, goes_on, |manager, buffer, chunk| {
                one(manager, buffer, chunk)?;
                self.progress.done.fetch_add(chunk.bytes, Relaxed);
                Ok(())
            });
            if let Err(why) = done {
                ends.store(true, Relaxed);
                lock(&failure).get_or_insert(why);
            }
        };
        let others = if self.how == Transferring::AtExit { 0 } else { transfer_threads() - 1 };
        thread::beside(c"wmshim-files", STACK, (0..others).map(|_| &work), || {
            let closing = Closing(&feed);
            find(&feed);
            drop(closing);
            work();
        });
        let failure = *lock(&failure);
        let has_ended = lock(&feed.chunks).waiting.is_empty();
        failure.or((!has_ended).then_some(FileFailure::Exiting)).map_or(Ok(()), Err)
    }

    /// One thread's part. A buffer with which a copy has failed is not kept.
    fn each(
        &self,
        feed: &ChunkFeed,
        goes_on: impl Fn() -> bool,
        one: impl Fn(&Manager<Device>, &mut StagingBuffer, &FileChunk) -> Result<(), FileFailure>,
    ) -> Result<(), FileFailure> {
        let mut buffer = None;
        while goes_on() {
            let Some((device, chunk)) = feed.next() else { break };
            let manager = registry::existing(device).ok_or(FileFailure::Exiting)?;
            let buffer = match &mut buffer {
                Some(buffer) => buffer,
                none => none.insert(self.buffer(manager)?),
            };
            one(manager, buffer, &chunk)?;
        }
        lock(&self.buffers).extend(buffer);
        Ok(())
    }

    fn buffer(&self, manager: &Manager<Device>) -> Result<StagingBuffer, FileFailure> {
        let kept = lock(&self.buffers).pop();
        kept.map_or_else(|| manager.gpu().staging_buffer(CHUNK as usize).map_err(FileFailure::Copy), Ok)
    }
}

/// How many threads transfer: half of the processors that this one may use.
pub(in crate::pauses) fn transfer_threads() -> usize {
    let usable = rustix::thread::sched_getaffinity(None).map_or(0, |set| set.count() as usize);
    (usable / 2).clamp(THREADS, MOST)
}

/// Keeps the memory of all devices mapped where it is.
fn borrowed() -> Vec<(CUdevice, BorrowedMemory<'static, Device>)> {
    registry::all().map(|manager| (manager.gpu().ordinal(), manager.borrow_memory())).collect()
}
