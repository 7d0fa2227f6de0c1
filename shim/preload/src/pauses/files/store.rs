//! Files that no other process finds by a name: the bytes of a paused process.
//!
//! They lie in a folder, or in memory that is not pinned.
//!
//! Invariants: a file has no name in its folder from its first byte on, so it goes with the process
//! at any end, and none removes it or takes another one for it; it may be read by its user alone.
//! A pause that finds no room for its bytes finds that before it writes any. The room is free when
//! a store goes, also if a child that was forked meanwhile has the files open.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use wm_driver::staging::PAGE;

use crate::process;

/// Names that are tried where a file cannot be made without one.
const NAMES: usize = 16;

/// Where files lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StorePlace {
    /// In a folder, as the process finds it.
    Folder(PathBuf),
    /// In memory of the host that no device has pinned.
    Memory,
}

/// Files of one pause.
#[derive(Debug)]
pub(super) struct FileStore {
    files: Vec<File>,
    is_in_memory: bool,
}

/// Where a chunk's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::pauses) struct ChunkPlace {
    /// The number of the file, or of the segment.
    pub(in crate::pauses) file: usize,
    /// In bytes from its beginning, a multiple of a page.
    pub(in crate::pauses) offset: u64,
}

impl Drop for FileStore {
    fn drop(&mut self) {
        // In a child the bytes are its parent's.
        if !process::forked() {
            self.files.iter().for_each(|file| drop(file.set_len(0)));
        }
    }
}

impl FileStore {
    /// As many files as `sizes`, in bytes, with room for these. Of memory so many bytes are
    /// `available`.
    ///
    /// # Errors
    /// The system's: the folder is none, it cannot be written, or has no room.
    pub(super) fn create(place: &StorePlace, sizes: &[u64], available: u64) -> Result<Self, Errno> {
        let make = |bytes: &u64| match place {
            StorePlace::Folder(folder) => make(folder, *bytes),
            // Its pages are made as they are written, by several threads.
            StorePlace::Memory => Ok(rustix::fs::memfd_create("wmshim-pause", MemfdFlags::CLOEXEC)?.into()),
        };
        if *place == StorePlace::Memory && sizes.iter().sum::<u64>() > available {
            return Err(Errno::NOSPC);
        }
        let files = sizes.iter().map(make).collect::<Result<_, _>>()?;
        Ok(Self { files, is_in_memory: *place == StorePlace::Memory })
    }

    pub(super) fn count(&self) -> usize {
        self.files.len()
    }

    pub(super) fn is_in_memory(&self) -> bool {
        self.is_in_memory
    }

    /// Writes whole pages.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn write(&self, place: ChunkPlace, bytes: &[u8]) -> Result<(), Errno> {
        self.with(place, |file| file.write_all_at(bytes, place.offset))
    }

    /// Reads whole pages that were written.
    ///
    /// # Errors
    /// The system's; an end before the last byte is `EIO`.
    pub(super) fn read(&self, place: ChunkPlace, bytes: &mut [u8]) -> Result<(), Errno> {
        self.with(place, |file| file.read_exact_at(bytes, place.offset))
    }

    /// Tries once more without direct I/O, which some file systems refuse for some transfers.
    fn with(&self, place: ChunkPlace, mut body: impl FnMut(&File) -> io::Result<()>) -> Result<(), Errno> {
        let file = self.files.get(place.file).ok_or(Errno::BADF)?;
        let Err(first) = body(file) else { return Ok(()) };
        let is_direct = rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::DIRECT));
        if !is_direct || first.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) {
            return Err(code(&first));
        }
        rustix::fs::fcntl_setfl(file, OFlags::empty())?;
        body(file).map_err(|error| code(&error))
    }
}

fn code(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

/// A file without a name, with direct I/O where there is such.
fn make(folder: &Path, bytes: u64) -> Result<File, Errno> {
    let direct = OFlags::DIRECT.bits().cast_signed();
    let file = nameless(folder, direct).or_else(|_| nameless(folder, 0))?;
    let whole = bytes.max(PAGE as u64);
    // No signal reaches this thread, but a process that is frozen and goes on interrupts the call.
    match retry_on_intr(|| rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, whole)) {
        // A file system that gives no room ahead tells at a write that there is none.
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(file),
        Err(full) => Err(full),
    }
}

fn nameless(folder: &Path, flags: i32) -> Result<File, Errno> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(Mode::from_raw_mode(0o600).bits());
    let temporary = OFlags::TMPFILE.bits().cast_signed();
    match options.custom_flags(flags | temporary).open(folder) {
        Ok(file) => Ok(file),
        Err(error) if is_unknown(&error) => unlinked(folder, flags),
        Err(error) => Err(code(&error)),
    }
}

/// Does the file system know no files without a name?
fn is_unknown(error: &io::Error) -> bool {
    matches!(code(error), Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL)
}

/// Its name is there for an instant, is random, and is no other file's.
fn unlinked(folder: &Path, flags: i32) -> Result<File, Errno> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600).custom_flags(flags);
    for _ in 0..NAMES {
        let path = folder.join(format!(".wmshim-pause-{:016x}", fastrand::u64(..)));
        match options.open(&path) {
            Ok(file) => {
                std::fs::remove_file(&path).map_err(|error| code(&error))?;
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(code(&error)),
        }
    }
    Err(Errno::EXIST)
}

#[cfg(test)]
mod tests {
    //! Hazard (resource leak): the files of a process that was killed fill the disk. Hazard (wrong
    //! result): bytes are read that were not written there.
    use super::*;

    fn folder() -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("wmshim-store-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[test]
    fn a_file_has_no_name_and_keeps_its_bytes() {
        let folder = folder();
        keeps_its_bytes(&StorePlace::Folder(folder.clone()), &folder);
        keeps_its_bytes(&StorePlace::Memory, &folder);
        let named = unlinked(&folder, 0).expect("a file");
        assert!(named.metadata().is_ok() && std::fs::read_dir(&folder).expect("a folder").count() == 0);
        std::fs::remove_dir(&folder).expect("it is empty");
    }

    fn keeps_its_bytes(place: &StorePlace, folder: &Path) {
        let store = FileStore::create(place, &[1 << 20, 0], 1 << 20).expect("a store");
        assert_eq!(std::fs::read_dir(folder).expect("a folder").count(), 0, "it has a name");
        // Direct I/O needs memory at a page.
        let mut memory = vec![0_u8; 4 * PAGE];
        let skew = memory.as_ptr().align_offset(PAGE);
        let bytes = &mut memory[skew..skew + 2 * PAGE];
        for (file, offset) in [(0, 0), (1, PAGE as u64), (0, 8 * PAGE as u64)] {
            bytes.fill(file as u8 + offset as u8 + 1);
            store.write(ChunkPlace { file, offset }, bytes).expect("written");
            bytes.fill(0);
            store.read(ChunkPlace { file, offset }, bytes).expect("read");
            assert!(bytes.iter().all(|byte| *byte == file as u8 + offset as u8 + 1));
        }
        let behind = ChunkPlace { file: 0, offset: 1 << 30 };
        assert_eq!(store.read(behind, bytes), Err(Errno::IO), "nothing was written there");
    }

    #[test]
    fn a_folder_that_is_none_is_an_error_of_the_systems() {
        let create = |folder: &str| FileStore::create(&StorePlace::Folder(folder.into()), &[1], 0).err();
        assert_eq!(create("/proc/self/nothing"), Some(Errno::NOENT));
        assert!(create("/dev/null").is_some());
        let full = FileStore::create(&StorePlace::Memory, &[1 << 20, 1], 1 << 20).err();
        assert_eq!(full, Some(Errno::NOSPC));
    }
}
