//! The user's private folder for sockets, and whether it can be trusted.
//!
//! The folder is `WMSHIM_STATS_DIR` if the user set it, and is then used or refused. Otherwise it
//! is the first usable one of `$XDG_RUNTIME_DIR/wmshim` and `${TMPDIR:-/tmp}/wmshim-$UID`. A
//! missing folder is created with mode 0700. An existing one must be a directory, not a link, must
//! belong to this user, and must not be writable by others: in `/tmp` any user can put a file in
//! the way first.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use thiserror::Error;
use wm_trust::{environment, folder, user};

/// Why there is no folder. The text names the remedy.
#[derive(Debug, Error)]
pub enum FolderError {
    /// In a user namespace that has no number for this process's user.
    #[error(
        "no socket: users without a number in this user namespace all appear as user {0}, and this process \
         is one of them; map its user (`unshare --map-current-user`)"
    )]
    NoUser(u32),
    /// The folder must not or cannot be used.
    #[error("no socket in {}: it {reason}; set WMSHIM_STATS_DIR to a directory of yours", path.display())]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// The problem of the folder.
        reason: FolderFault,
    },
}

/// The problem of a folder. Each text continues "the folder".
#[derive(Debug, Error)]
pub enum FolderFault {
    /// The system refuses to make it.
    #[error("cannot be created: {0}")]
    NotMade(io::Error),
    /// The system does not tell its owner and mode.
    #[error("cannot be examined: {0}")]
    NotSeen(io::Error),
    /// Its target may change at any time.
    #[error("is a symbolic link")]
    Link,
    /// A file of another kind is in the way.
    #[error("is not a directory")]
    NoDirectory,
    /// Another user can change it.
    #[error("belongs to user {0}")]
    Foreign(u32),
    /// Other users can change it.
    #[error("can be written by others (mode {0:o})")]
    Writable(u32),
}

/// The folder to use, created if it is missing.
///
/// # Errors
/// No folder can be used: the problem of the last candidate.
pub fn directory(explicit: Option<&Path>) -> Result<PathBuf, FolderError> {
    let own = user::own().ok_or_else(|| FolderError::NoUser(user::effective()))?;
    first(candidates(explicit, own).into_iter(), explicit.is_some(), own)
}

/// The first usable one.
fn first(
    candidates: impl Iterator<Item = PathBuf>,
    is_named: bool,
    own: u32,
) -> Result<PathBuf, FolderError> {
    let mut problem = FolderError::NoUser(own);
    for path in candidates {
        match prepare(&path, is_named, own) {
            Ok(()) => return Ok(path),
            Err(reason) => problem = FolderError::Unusable { path, reason },
        }
    }
    Err(problem)
}

/// The folder for files that are mapped: the same, but memory rather than a disk. A store into a
/// mapped page of a disk's file may wait for the disk.
///
/// # Errors
/// As those of [`directory`].
pub fn in_memory(explicit: Option<&Path>) -> Result<PathBuf, FolderError> {
    let own = user::own().ok_or_else(|| FolderError::NoUser(user::effective()))?;
    let memory = folder::in_memory(own);
    let is_disk = |path: &PathBuf| explicit.is_none() && !path.starts_with("/run/");
    let candidates = candidates(explicit, own).into_iter();
    let (disks, mut places): (Vec<_>, Vec<_>) = candidates.partition(is_disk);
    places.extend(explicit.is_none().then_some(memory));
    first(places.into_iter().chain(disks), explicit.is_some(), own)
}

/// The folders that a process of this user, with our environment, may use, the first choice first.
pub fn candidates(explicit: Option<&Path>, user: u32) -> Vec<PathBuf> {
    if let Some(path) = explicit {
        return vec![path.to_owned()];
    }
    let runtime = environment::variable("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
    let temporary = environment::variable("TMPDIR").filter(|value| !value.is_empty());
    let temporary = temporary.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let shared = temporary.join(format!("wmshim-{user}"));
    runtime.map(|path| PathBuf::from(path).join("wmshim")).into_iter().chain([shared]).collect()
}

/// Creates the folder if it is missing, and checks it either way. Root may have another user's
/// variables (`sudo -E`): only a folder that the user named is made inside another user's folder.
fn prepare(path: &Path, is_named: bool, own: u32) -> Result<(), FolderFault> {
    let made = match fs::symlink_metadata(path) {
        Ok(_) => Ok(()),
        Err(_) if is_named => DirBuilder::new().mode(0o700).create(path),
        Err(_) => folder::make(path),
    };
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(FolderFault::NotMade(error)),
        _ => check(path, own),
    }
}

fn check(path: &Path, own: u32) -> Result<(), FolderFault> {
    let status = fs::symlink_metadata(path).map_err(FolderFault::NotSeen)?;
    if status.is_symlink() {
        return Err(FolderFault::Link);
    }
    if !status.is_dir() {
        return Err(FolderFault::NoDirectory);
    }
    if status.uid() != own {
        return Err(FolderFault::Foreign(status.uid()));
    }
    if status.mode() & 0o022 != 0 {
        return Err(FolderFault::Writable(status.mode() & 0o7777));
    }
    Ok(())
}
