//! A pause to files: all memory is written first, and only then leaves; it is read after it has
//! come back. So is memory of which processes have a copy in common ([`super::common`]).
//!
//! Behind the closed gate nothing writes the memory, so a pause that cannot write has changed
//! nothing. While it is away no memory is mapped at its addresses, and the host has none of it. A
//! resume maps memory of the device, or of the host where the device is full, and reads the bytes
//! into it. What cannot be read is put away again: its file stays, and the process stays paused.

mod chunks;
mod store;
mod transfer;

use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use wm_abi::CUdevice;
use wm_driver::staging::StagingBuffer;
use wm_driver::{Device, Tier, lock};
use wm_memory::{Manager, MoveRefusal};

use super::common::segment::MappedSegment;
use super::unmapped::AwayPlace;
use crate::{physical, registry};
use store::FileStore;

use chunks::CHUNK;
pub(super) use chunks::{FileChunk, StoredMemory};
pub(crate) use chunks::{FileFailure, FileProgress};
pub(super) use store::ChunkPlace;
pub(crate) use store::StorePlace;
use transfer::{ChunkFeed, THREADS};
pub(super) use transfer::{Transferring, Transfers, transfer_threads};

/// Where the bytes of a pause lie: in files of its own, in copies that processes have in common, or
/// in both. The segments of the copies are numbered behind the files.
#[derive(Debug, Default)]
struct PauseStore {
    files: Option<FileStore>,
    segments: Vec<Arc<MappedSegment>>,
}

impl PauseStore {
    /// The place of the first segment.
    fn file_count(&self) -> usize {
        self.files.as_ref().map_or(0, FileStore::count)
    }

    fn read(&self, chunk: &FileChunk, pages: &mut [u8]) -> Result<(), FileFailure> {
        let FileChunk { bytes, place, .. } = *chunk;
        match (place.file.checked_sub(self.file_count()), &self.files) {
            (Some(segment), _) => {
                let segment = self.segments.get(segment);
                let copy = segment.and_then(|segment| segment.chunk(place.offset, bytes));
                pages[..bytes as usize].copy_from_slice(copy.ok_or(Errno::FAULT)?);
                Ok(())
            }
            (None, Some(files)) => Ok(files.read(place, pages)?),
            (None, None) => Err(Errno::BADF.into()),
        }
    }
}

/// Memory that is away. It goes with the process.
#[derive(Debug)]
pub(super) struct StoredPause {
    store: PauseStore,
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
        let store = FileStore::create(place, &sizes, available)?;
        Transfers::new(progress, Transferring::Usual).of(&memory, |manager, buffer, chunk| {
            Ok(store.write(chunk.place, staged_out(manager, buffer, chunk)?)?)
        })?;
        let store = PauseStore { files: Some(store), ..PauseStore::default() };
        Ok(Self { store, memory: Mutex::new(memory) })
    }

    /// Memory of which the bytes lie in segments: the place of a chunk says in which of these.
    pub(super) fn of_segments(segments: Vec<Arc<MappedSegment>>, memory: Vec<StoredMemory>) -> Self {
        let store = PauseStore { segments, ..PauseStore::default() };
        Self { store, memory: Mutex::new(memory) }
    }

    /// The same pause, with other memory that lies in segments.
    pub(super) fn with_copies(mut self, copies: &Self) -> Self {
        let count = self.store.file_count() + self.store.segments.len();
        self.store.segments.extend(copies.store.segments.iter().map(Arc::clone));
        let mut memory = std::mem::take(&mut *lock(&copies.memory));
        memory.iter_mut().flat_map(|one| &mut one.chunks).for_each(|chunk| chunk.place.file += count);
        lock(&self.memory).append(&mut memory);
        self
    }

    /// Where memory lies that is away.
    pub(super) fn place(&self) -> AwayPlace {
        if self.store.files.is_some() { AwayPlace::Files } else { AwayPlace::Copies }
    }

    /// Are the files memory?
    pub(super) fn is_in_memory(&self) -> bool {
        self.store.files.as_ref().is_none_or(FileStore::is_in_memory)
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

    /// What finds room comes back, the memory that was used last first. It is filled while more is
    /// being mapped.
    pub(super) fn come_back(&self, progress: &FileProgress, how: Transferring) -> CameBack {
        let mut came = CameBack::default();
        let mut rest = std::mem::take(&mut *lock(&self.memory));
        rest.sort_by_key(|one| (std::cmp::Reverse(one.last_use), one.address));
        progress.begin(rest.iter().map(|one| one.bytes).sum());
        let mut mapped = Vec::new();
        let unread = Mutex::new(Vec::new());
        let map = |feed: &ChunkFeed| rest = self.map(std::mem::take(&mut rest), feed, &mut mapped, &mut came);
        let all = Transfers::new(progress, how).fed(map, |manager, buffer, chunk| {
            let read = self.read(manager, buffer, chunk);
            // The others are read all the same.
            read.or_else(|why| {
                lock(&unread).push((chunk.address, why));
                Ok(())
            })
        });
        came.waits = rest.iter().map(|one| one.bytes).sum();
        let unread = std::mem::take(&mut *lock(&unread));
        let lacking = match (all, unread.first()) {
            // What was read is read again.
            (Err(why), _) => self.put_back(mapped, why, &mut came),
            (Ok(()), None) => Vec::new(),
            (Ok(()), Some((_, why))) => {
                let holds = |one: &StoredMemory| {
                    unread.iter().any(|(address, _)| (one.address..one.address + one.bytes).contains(address))
                };
                mapped.retain(holds);
                self.put_back(mapped, *why, &mut came)
            }
        };
        rest.extend(lacking);
        *lock(&self.memory) = rest;
        came
    }

    /// Maps memory for what finds room, and has it filled. Returns what finds none.
    fn map(
        &self,
        memory: Vec<StoredMemory>,
        feed: &ChunkFeed,
        mapped: &mut Vec<StoredMemory>,
        came: &mut CameBack,
    ) -> Vec<StoredMemory> {
        let (mut rest, mut is_full) = (Vec::new(), Vec::new());
        for one in memory {
            let Some(manager) = registry::existing(one.device) else { continue };
            if is_full.contains(&one.device) {
                rest.push(one);
                continue;
            }
            match if one.is_mapped { Ok(Some(Tier::Device)) } else { manager.bring_back(one.address) } {
                Ok(None) => {}
                Ok(Some(tier)) => {
                    *if tier == Tier::Device { &mut came.device } else { &mut came.host } += one.bytes;
                    feed.add(&one);
                    mapped.push(one);
                }
                Err(_) => {
                    is_full.push(one.device);
                    rest.push(one);
                }
            }
        }
        rest
    }

    fn read(
        &self,
        manager: &Manager<Device>,
        buffer: &mut StagingBuffer,
        chunk: &FileChunk,
    ) -> Result<(), FileFailure> {
        let pages = buffer.bytes().get_mut(..chunk.pages()).ok_or(Errno::INVAL)?;
        self.store.read(chunk, pages)?;
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
}

/// Copies a chunk out of the device. The whole pages.
pub(super) fn staged_out<'a>(
    manager: &Manager<Device>,
    buffer: &'a mut StagingBuffer,
    chunk: &FileChunk,
) -> Result<&'a [u8], FileFailure> {
    let bytes = chunk.bytes as usize;
    manager.gpu().stage_out(buffer, chunk.address, bytes).map_err(FileFailure::Copy)?;
    let pages = buffer.bytes().get_mut(..chunk.pages()).ok_or(Errno::INVAL)?;
    pages[bytes..].fill(0);
    Ok(pages)
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
