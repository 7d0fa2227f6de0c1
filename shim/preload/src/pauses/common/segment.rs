//! A segment: chunks of several processes' memory, one behind the other in memory of the host that
//! has no name and is not pinned.
//!
//! Invariants: its bytes never change once it is sealed, so every process that maps it reads what
//! one of them wrote; a segment of another process is not mapped before its seals were seen. The
//! descriptor is not kept: the mapping holds the memory, also where the program closes all
//! descriptors. A forked child has no mapping.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::ptr::{NonNull, null_mut};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use crate::process;

/// What holds for the bytes of a segment from now on.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::WRITE);

/// A segment that is being written.
#[derive(Debug)]
pub(in crate::pauses) struct OpenSegment {
    file: File,
}

/// A segment that is mapped for reading.
#[derive(Debug)]
pub(in crate::pauses) struct MappedSegment {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the bytes are read only, and never change.
unsafe impl Send for MappedSegment {}
// SAFETY: as above.
unsafe impl Sync for MappedSegment {}

impl OpenSegment {
    /// An empty one.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn create() -> Result<Self, Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        Ok(Self { file: memfd_create("wmshim-common", flags)?.into() })
    }

    /// Writes a chunk at an offset. Several threads may write at a time.
    ///
    /// # Errors
    /// The system's.
    pub(in crate::pauses) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let failed = |error: std::io::Error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
        self.file.write_all_at(bytes, offset).map_err(failed)
    }

    /// Its bytes change no more.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn seal(&self) -> Result<MappedSegment, Errno> {
        fcntl_add_seals(&self.file, SEALS)?;
        MappedSegment::of(self.file.as_fd())
    }

    /// For the broker.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl MappedSegment {
    /// Maps a segment, if its bytes cannot change.
    ///
    /// # Errors
    /// `PERM` if they can; the system's.
    pub(super) fn of(file: BorrowedFd<'_>) -> Result<Self, Errno> {
        if !fcntl_get_seals(file)?.contains(SEALS) {
            return Err(Errno::PERM);
        }
        let bytes = usize::try_from(fstat(file)?.st_size).map_err(|_| Errno::INVAL)?;
        // SAFETY: a new range of addresses, chosen by the system.
        let start = unsafe { mmap(null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::INVAL)?;
        let segment = Self { start, bytes };
        // SAFETY: the mapping is ours; a child that has none does not keep the memory.
        unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontFork) }?;
        Ok(segment)
    }

    /// Bytes of all of it.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Bytes of a chunk. `None`: it does not lie in the segment.
    pub(in crate::pauses) fn chunk(&self, offset: u64, bytes: u64) -> Option<&[u8]> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.bytes as u64)?;
        if process::forked() {
            return None;
        }
        // SAFETY: inside the mapping, which lives as long as this value, of bytes that never change
        // and pages that never go.
        unsafe {
            Some(std::slice::from_raw_parts(
                self.start.as_ptr().add(offset as usize),
                (end - offset) as usize,
            ))
        }
    }

    /// Are these the bytes at an offset?
    pub(super) fn has(&self, offset: u64, bytes: &[u8]) -> bool {
        self.chunk(offset, bytes.len() as u64) == Some(bytes)
    }
}

impl Drop for MappedSegment {
    fn drop(&mut self) {
        // In a child other memory may have come to the place.
        if !process::forked() {
            // SAFETY: our own mapping, without users.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a process reads bytes that another one has written since, or dies
    //! since another one took pages away.
    use super::*;

    #[test]
    fn the_bytes_of_a_segment_never_change_once_it_can_be_read() {
        let open = OpenSegment::create().expect("a segment");
        open.write(4096, &[7; 4096]).expect("written");
        assert_eq!(MappedSegment::of(open.descriptor()).err(), Some(Errno::PERM), "it can be written");
        let mapped = open.seal().expect("sealed");
        assert_eq!(mapped.bytes(), 8192);
        assert!(mapped.chunk(4096, 4096).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 7)));
        assert_eq!(open.write(4096, &[8]), Err(Errno::PERM));
        assert!(open.file.set_len(0).is_err());
        drop(open);
        assert_eq!(mapped.chunk(0, 1), Some(&[0][..]), "the mapping holds the memory");
        assert_eq!(mapped.chunk(4096, 4097), None);
        assert_eq!(mapped.chunk(u64::MAX, 2), None);
    }
}
