//! The chunks of memory that files and segments hold, and how far they were written or read.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;
use wm_abi::CUdevice;
use wm_driver::staging::PAGE;

use super::store::ChunkPlace;

/// Bytes of a chunk, and of each thread's pinned memory.
pub(super) const CHUNK: u64 = 8 << 20;

/// How far files were written or read, in bytes.
#[derive(Debug, Default)]
pub(crate) struct FileProgress {
    pub(super) done: AtomicU64,
    whole: AtomicU64,
}

impl FileProgress {
    pub(crate) const fn new() -> Self {
        Self { done: AtomicU64::new(0), whole: AtomicU64::new(0) }
    }

    pub(super) fn begin(&self, whole: u64) {
        self.done.store(0, Relaxed);
        self.whole.store(whole, Relaxed);
    }

    /// Bytes so far, and of all.
    pub(crate) fn read(&self) -> [u64; 2] {
        [&self.done, &self.whole].map(|bytes| bytes.load(Relaxed))
    }
}

/// Bytes that lie together in memory and in a file, or in a segment.
#[derive(Debug, Clone, Copy)]
pub(in crate::pauses) struct FileChunk {
    pub(in crate::pauses) address: u64,
    pub(in crate::pauses) bytes: u64,
    pub(in crate::pauses) place: ChunkPlace,
}

impl FileChunk {
    /// Whole pages of the file.
    pub(super) fn pages(&self) -> usize {
        self.bytes.next_multiple_of(PAGE as u64) as usize
    }
}

/// A handle's worth of memory, of which the files have the bytes.
#[derive(Debug, Clone)]
pub(in crate::pauses) struct StoredMemory {
    pub(in crate::pauses) device: CUdevice,
    pub(in crate::pauses) address: u64,
    pub(in crate::pauses) bytes: u64,
    pub(super) last_use: Option<u64>,
    pub(super) chunks: Vec<FileChunk>,
    /// Memory is mapped that was not filled.
    pub(super) is_mapped: bool,
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

impl StoredMemory {
    /// A handle's worth of memory, all of it in one segment from an offset on.
    pub(in crate::pauses) fn in_segment(
        (device, range): (CUdevice, &Range<u64>),
        last_use: Option<u64>,
        place: ChunkPlace,
    ) -> Self {
        let (address, bytes) = (range.start, range.end - range.start);
        let chunk = |from: u64| FileChunk {
            address: address + from,
            bytes: CHUNK.min(bytes - from),
            place: ChunkPlace { offset: place.offset + from, ..place },
        };
        let chunks = (0..bytes).step_by(CHUNK as usize).map(chunk).collect();
        Self { device, address, bytes, last_use, chunks, is_mapped: false }
    }
}
