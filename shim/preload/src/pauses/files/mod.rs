//! A pause to files: all memory is written first, and only then leaves; it is read after it has
//! come back.
//!
//! Behind the closed gate nothing writes the memory, so a pause that cannot write has changed
//! nothing. While it is away no memory is mapped at its addresses, and the host has none of it. A
//! resume maps memory of the device, or of the host where the device is full, and reads the bytes
//! into it. What cannot be read is put away again: its file stays, and the process stays paused.

mod store;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use rustix::io::Errno;
use wm_abi::CUdevice;
use wm_driver::staging::{PAGE, StagingBuffer};
use wm_driver::{Device, Tier, lock, thread};
use wm_memory::{BorrowedMemory, Manager, MoveRefusal};

use crate::{physical, process, registry};
use store::{ChunkPlace, FileStore};

pub(crate) use store::StorePlace;

/// Threads that copy and write, or read and copy; each has a file of its own.
const THREADS: usize = 4;

/// Bytes of a chunk, and of each thread's pinned memory.
const CHUNK: u64 = 8 << 20;

/// Stack of a thread, bytes.
const STACK: usize = 256 << 10;

/// How far files were written or read, in bytes.
#[derive(Debug, Default)]
pub(crate) struct FileProgress {
    done: AtomicU64,
    whole: AtomicU64,
}

impl FileProgress {
    pub(crate) const fn new() -> Self {
        Self { done: AtomicU64::new(0), whole: AtomicU64::new(0) }
    }

    fn begin(&self, whole: u64) {
        self.done.store(0, Relaxed);
        self.whole.store(whole, Relaxed);
    }

    /// Bytes so far, and of all.
    pub(crate) fn read(&self) -> [u64; 2] {
        [&self.done, &self.whole].map(|bytes| bytes.load(Relaxed))
    }
}

/// Bytes that lie together in memory and in a file.
#[derive(Debug, Clone, Copy)]
struct FileChunk {
    address: u64,
    bytes: u64,
    place: ChunkPlace,
}

impl FileChunk {
    /// Whole pages of the file.
    fn pages(&self) -> usize {
        self.bytes.next_multiple_of(PAGE as u64) as usize
    }
}

/// A handle's worth of memory, of which the files have the bytes.
#[derive(Debug, Clone)]
struct StoredMemory {
    device: CUdevice,
    address: u64,
    bytes: u64,
    last_use: Option<u64>,
    chunks: Vec<FileChunk>,
    /// Memory is mapped that was not filled.
    is_mapped: bool,
}

/// Which threads transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transferring {
    /// The thread that carries requests out, and others. They end when the process exits.
    Usual,
    /// A thread of the program's, alone: the library's own make no call of the driver at exit.
    AtExit,
}

/// Memory that is away. It goes with the process.
#[derive(Debug)]
pub(super) struct StoredPause {
    store: FileStore,
    memory: Mutex<Vec<StoredMemory>>,
}

/// Memory that a pause wants to write.
#[derive(Debug, Clone)]
pub(super) struct WantedMemory {
    pub(super) device: CUdevice,
    pub(super) used: wm_memory::OccupiedMemory,
    pub(super) last_use: Option<u64>,
}

/// What came back.
#[derive(Debug, Default)]
pub(super) struct CameBack {
    /// Bytes on the device, and on the host.
    pub(super) device: u64,
    pub(super) host: u64,
    /// Bytes that are away still, since there is no room.
    pub(super) waits: u64,
    /// Why some could not be read, and how much that is.
    pub(super) unread: Option<(FileFailure, u64)>,
}

impl CameBack {
    /// Is nothing away any more?
    pub(super) fn is_all(&self) -> bool {
        self.waits == 0 && self.unread.is_none()
    }
}

/// Why files could not be written or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FileFailure {
    #[error("there is no room for the memory where it is to go")]
    Full,
    #[error("files in the folder: {0}")]
    System(Errno),
    #[error("a copy: {0}")]
    Copy(wm_abi::CUresult),
    #[error("the process exits")]
    Exiting,
}

impl From<Errno> for FileFailure {
    fn from(code: Errno) -> Self {
        match code {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Self::Full,
            code => Self::System(code),
        }
    }
}

impl StoredPause {
    /// Writes memory to files. Nothing leaves. So many bytes of the host are `available`.
    ///
    /// # Errors
    /// Why not all was written; then there are no files.
    pub(super) fn write(
        place: &StorePlace,
        available: u64,
        wanted: &[WantedMemory],
        progress: &FileProgress,
    ) -> Result<Self, FileFailure> {
        let mut sizes = [0; THREADS];
        let memory: Vec<StoredMemory> = wanted.iter().map(|wanted| placed(wanted, &mut sizes)).collect();
        let stored = Self { store: FileStore::create(place, &sizes, available)?, memory: Mutex::new(memory) };
        let memory = lock(&stored.memory).clone();
        stored.transfer(&memory, progress, Transferring::Usual, |manager, buffer, chunk| {
            manager
                .gpu()
                .stage_out(buffer, chunk.address, chunk.bytes as usize)
                .map_err(FileFailure::Copy)?;
            let pages = buffer.bytes().get_mut(..chunk.pages()).ok_or(Errno::INVAL)?;
            pages[chunk.bytes as usize..].fill(0);
            Ok(stored.store.write(chunk.place, pages)?)
        })?;
        Ok(stored)
    }

    /// Are the files memory?
    pub(super) fn is_in_memory(&self) -> bool {
        self.store.is_in_memory()
    }

    /// The memory leaves. `stays` is told why some does not; the bytes that left.
    pub(super) fn put_away(&self, mut stays: impl FnMut(CUdevice, u64, MoveRefusal)) -> u64 {
        let mut memory = lock(&self.memory);
        memory.retain(|one| {
            let Some(manager) = registry::existing(one.device) else { return false };
            let range = one.address..one.address + one.bytes;
            let alone = physical::cache().make_alone(&range).map_err(MoveRefusal::from);
            let left = alone.and_then(|()| manager.put_away(one.address));
            left.inspect_err(|why| stays(one.device, one.bytes, *why)).is_ok()
        });
        memory.iter().map(|one| one.bytes).sum()
    }

    /// What finds room comes back, the memory that was used last first.
    pub(super) fn come_back(&self, progress: &FileProgress, how: Transferring) -> CameBack {
        let mut came = CameBack::default();
        let mut rest = std::mem::take(&mut *lock(&self.memory));
        rest.sort_by_key(|one| (std::cmp::Reverse(one.last_use), one.address));
        let (mut mapped, mut is_full) = (Vec::new(), Vec::new());
        rest.retain(|one| {
            let Some(manager) = registry::existing(one.device) else { return false };
            if is_full.contains(&one.device) {
                return true;
            }
            let back = if one.is_mapped { Ok(Some(Tier::Device)) } else { manager.bring_back(one.address) };
            match back {
                Ok(None) => false,
                Ok(Some(tier)) => {
                    *if tier == Tier::Device { &mut came.device } else { &mut came.host } += one.bytes;
                    mapped.push(one.clone());
                    false
                }
                Err(_) => {
                    is_full.push(one.device);
                    true
                }
            }
        });
        came.waits = rest.iter().map(|one| one.bytes).sum();
        let unread = self.fill(&mapped, progress, how, &mut came);
        rest.extend(unread);
        *lock(&self.memory) = rest;
        came
    }

    /// Reads the bytes of memory that is mapped. What could not be read is put away again.
    fn fill(
        &self,
        mapped: &[StoredMemory],
        progress: &FileProgress,
        how: Transferring,
        came: &mut CameBack,
    ) -> Vec<StoredMemory> {
        let unread = Mutex::new(Vec::new());
        let all = self.transfer(mapped, progress, how, |manager, buffer, chunk| {
            let read = self.read(manager, buffer, chunk);
            // The others are read all the same.
            read.or_else(|why| {
                lock(&unread).push((chunk.address, why));
                Ok(())
            })
        });
        let unread = std::mem::take(&mut *lock(&unread));
        if let Err(why) = all {
            // What was read is read again.
            return self.put_back(mapped.to_vec(), why, came);
        }
        let Some((_, why)) = unread.first().copied() else { return Vec::new() };
        let holds = |one: &&StoredMemory| {
            unread.iter().any(|(address, _)| (one.address..one.address + one.bytes).contains(address))
        };
        self.put_back(mapped.iter().filter(holds).cloned().collect(), why, came)
    }

    fn read(
        &self,
        manager: &Manager<Device>,
        buffer: &mut StagingBuffer,
        chunk: &FileChunk,
    ) -> Result<(), FileFailure> {
        let pages = buffer.bytes().get_mut(..chunk.pages()).ok_or(Errno::INVAL)?;
        self.store.read(chunk.place, pages)?;
        manager.gpu().stage_in(chunk.address, buffer, chunk.bytes as usize).map_err(FileFailure::Copy)
    }

    fn put_back(
        &self,
        mut memory: Vec<StoredMemory>,
        why: FileFailure,
        came: &mut CameBack,
    ) -> Vec<StoredMemory> {
        let bytes = memory.iter().map(|one| one.bytes).sum();
        came.unread = Some((why, bytes));
        for one in &mut memory {
            let manager = registry::existing(one.device);
            one.is_mapped = manager.is_some_and(|manager| manager.put_away(one.address).is_err());
        }
        memory
    }

    /// Carries out a transfer for each chunk, in several threads. The first error ends it. What was
    /// freed is left out: frees pass while the process is paused.
    fn transfer(
        &self,
        memory: &[StoredMemory],
        progress: &FileProgress,
        how: Transferring,
        one: impl Fn(&Manager<Device>, &mut StagingBuffer, &FileChunk) -> Result<(), FileFailure> + Sync,
    ) -> Result<(), FileFailure> {
        let borrowed: Vec<(CUdevice, BorrowedMemory<'_, Device>)> =
            registry::all().map(|manager| (manager.gpu().ordinal(), manager.borrow_memory())).collect();
        let is_there = |one: &&StoredMemory| {
            borrowed.iter().any(|(device, memory)| *device == one.device && memory.has(one.address))
        };
        let chunks_of = |one: &StoredMemory| {
            let device = one.device;
            one.chunks.iter().map(move |chunk| (device, *chunk)).collect::<Vec<_>>()
        };
        let chunks: Vec<(CUdevice, FileChunk)> = memory.iter().filter(is_there).flat_map(chunks_of).collect();
        progress.begin(chunks.iter().map(|(_, chunk)| chunk.bytes).sum());
        let (next, failure, ends) = (AtomicUsize::new(0), Mutex::new(None), AtomicBool::new(false));
        let work = || {
            let goes_on = || how == Transferring::AtExit || !process::exiting();
            let done = each(
                &chunks,
                &next,
                || goes_on() && !ends.load(Relaxed),
                |manager, buffer, chunk| {
                    one(manager, buffer, chunk)?;
                    progress.done.fetch_add(chunk.bytes, Relaxed);
                    Ok(())
                },
            );
            if let Err(why) = done {
                ends.store(true, Relaxed);
                lock(&failure).get_or_insert(why);
            }
        };
        let threads = if how == Transferring::AtExit { 1 } else { THREADS.min(chunks.len()) };
        let others = (1..threads).map(|_| &work);
        thread::beside(c"wmshim-files", STACK, others, work);
        let failure = *lock(&failure);
        let ended = next.load(Relaxed) >= chunks.len();
        failure.or((!ended).then_some(FileFailure::Exiting)).map_or(Ok(()), Err)
    }
}

/// One thread's part.
fn each(
    chunks: &[(CUdevice, FileChunk)],
    next: &AtomicUsize,
    goes_on: impl Fn() -> bool,
    one: impl Fn(&Manager<Device>, &mut StagingBuffer, &FileChunk) -> Result<(), FileFailure>,
) -> Result<(), FileFailure> {
    let mut buffer = None;
    while goes_on() {
        let Some((device, chunk)) = chunks.get(next.fetch_add(1, Relaxed)) else { return Ok(()) };
        let manager = registry::existing(*device).ok_or(FileFailure::Exiting)?;
        let buffer = match &mut buffer {
            Some(buffer) => buffer,
            none => none.insert(manager.gpu().staging_buffer(CHUNK as usize).map_err(FileFailure::Copy)?),
        };
        one(manager, buffer, chunk)?;
    }
    Ok(())
}

/// Places for the parts of memory, one file after another.
fn placed(wanted: &WantedMemory, sizes: &mut [u64; THREADS]) -> StoredMemory {
    let range = &wanted.used.range;
    let mut chunks = Vec::new();
    for part in &wanted.used.parts {
        let mut address = part.start;
        while address < part.end {
            let bytes = CHUNK.min(part.end - address);
            let file = (0..THREADS).min_by_key(|file| sizes[*file]).unwrap_or(0);
            let chunk = FileChunk { address, bytes, place: ChunkPlace { file, offset: sizes[file] } };
            sizes[file] += chunk.pages() as u64;
            address += bytes;
            chunks.push(chunk);
        }
    }
    let (device, last_use) = (wanted.device, wanted.last_use);
    StoredMemory {
        device,
        address: range.start,
        bytes: range.end - range.start,
        last_use,
        chunks,
        is_mapped: false,
    }
}
