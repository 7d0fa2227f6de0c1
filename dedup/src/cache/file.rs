//! A file of the cache folder: a regular file of this user's.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use thiserror::Error;
use wm_trust::user;

/// Why writers or verdicts could not be read or added. Everything goes on without them.
#[derive(Debug, Error)]
pub enum CacheError {
    /// Another process adds just now: try again later.
    #[error("another process holds the lock")]
    Busy,
    /// The file is no regular file of this user's.
    #[error("it is no regular file of this user's")]
    Foreign,
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Opens a regular file of this user: no link, and no file that could block.
pub(super) fn open(path: &Path, flags: OFlags) -> Result<File, CacheError> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(io::Error::from)?);
    let found = file.metadata()?;
    let is_ours = found.is_file() && user::is_own(found.uid());
    if is_ours { Ok(file) } else { Err(CacheError::Foreign) }
}
