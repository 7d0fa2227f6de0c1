//! Writers that the user's processes found against their proof, kept for each other in one file of
//! the user's cache folder.
//!
//! The file is replaced as a whole, under a lock beside it: a writer reads the file, merges, writes
//! a new file and renames it. So readers need no lock, a process that is killed leaves the old file
//! or the new one, and no process loses another one's writers. No process waits: if another one
//! holds the lock, the caller adds later. The file is not forced to the disk: after a loss of power
//! it may be damaged, and damaged records are not believed.
//!
//! A cache is a hint. A writer that is wrong there costs memory that is not shared; no byte of any
//! process's memory depends on it.
//!
//! The file holds at most 65,536 parameters. Beyond that the oldest are dropped.

mod file;
mod known_writers;
mod record;
mod results;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use wm_trust::folder;

pub use file::CacheError;
use file::open;
pub use known_writers::KnownWriters;
pub use results::ResultsCache;

/// Parameters that a file holds.
const MOST: usize = 1 << 16;
const MOST_BYTES: usize = record::HEAD.len() + MOST * record::RECORD_BYTES;

/// The file. It is opened by the methods only.
#[derive(Debug, Clone)]
pub struct WriterCache {
    folder: PathBuf,
}

impl WriterCache {
    /// In this folder, which is made, for the user alone, when something is added.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// The stored writers, without damaged records; none, if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or is not this user's.
    pub fn load(&self) -> Result<KnownWriters, CacheError> {
        match folder::check(&self.folder)
            .map_err(CacheError::from)
            .and_then(|()| open(&self.path(""), OFlags::RDONLY))
        {
            Ok(file) => {
                let mut bytes = Vec::new();
                file.take(MOST_BYTES as u64).read_to_end(&mut bytes)?;
                Ok(record::decode(&bytes))
            }
            Err(CacheError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                Ok(KnownWriters::default())
            }
            Err(error) => Err(error),
        }
    }

    /// Adds writers to the stored ones, and returns all of them.
    ///
    /// # Errors
    /// [`CacheError::Busy`] while another process or thread adds; else the files cannot be written,
    /// or are not this user's. The file is unchanged then.
    pub fn add(&self, news: &KnownWriters) -> Result<KnownWriters, CacheError> {
        folder::make(&self.folder)?;
        folder::check(&self.folder)?;
        let _locked = CacheLock::acquire(&self.path(".lock"))?;
        let before = self.load()?;
        let mut all = before.clone();
        all.merge(news);
        all.trim(MOST);
        if all != before {
            self.replace(&record::encode(&all))?;
        }
        Ok(all)
    }

    /// Under the lock there is one writer, so the new file has one name, and the remains of a
    /// killed process are overwritten.
    fn replace(&self, bytes: &[u8]) -> Result<(), CacheError> {
        let new = self.path(".new");
        open(&new, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?.write_all(bytes)?;
        Ok(std::fs::rename(&new, self.path(""))?)
    }

    /// Versions of the format have files of their own, so that they do not take turns in replacing
    /// each other's.
    fn path(&self, suffix: &str) -> PathBuf {
        self.folder.join(format!("writers-1{suffix}"))
    }
}

/// The right to replace the file. It ends with the value, even if a child of this process has
/// inherited the descriptor.
struct CacheLock(File);

impl CacheLock {
    fn acquire(path: &Path) -> Result<Self, CacheError> {
        let file = open(path, OFlags::RDWR | OFlags::CREATE)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(CacheError::Busy),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }
}

impl Drop for CacheLock {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests;
