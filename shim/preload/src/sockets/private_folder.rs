//! The user's private folder for sockets, and whether it can be trusted.
//!
//! It is `WMSHIM_STATS_DIR`, or `$XDG_RUNTIME_DIR/wmshim`, or `${TMPDIR:-/tmp}/wmshim-$UID`. One that the user named is
//! used or refused; of the others the first usable one is taken. We create it with mode 0700. One that exists must be
//! a directory, not a link, ours, and closed to other writers: in `/tmp` anybody can put something in our way first.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use wm_trust::{environment, folder, user};

/// The directory to use, created if need be.
///
/// # Errors
/// A sentence for the log that names the directory and the remedy.
pub(crate) fn directory(explicit: Option<&Path>) -> Result<PathBuf, String> {
    let mut problem = String::new();
    let own = user::own().ok_or_else(unknown)?;
    for path in candidates(explicit, own) {
        match prepare(&path, explicit.is_some(), own) {
            Ok(()) => return Ok(path),
            Err(why) => problem = unusable(&path, &why),
        }
    }
    Err(problem)
}

/// Where a process of this user, with our environment, has its folder.
pub(crate) fn candidates(explicit: Option<&Path>, user: u32) -> Vec<PathBuf> {
    if let Some(path) = explicit {
        return vec![path.to_owned()];
    }
    let runtime = environment::variable("XDG_RUNTIME_DIR").filter(|value| !value.is_empty());
    let temporary = environment::variable("TMPDIR").filter(|value| !value.is_empty());
    let temporary = temporary.map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let shared = temporary.join(format!("wmshim-{user}"));
    runtime.map(|path| PathBuf::from(path).join("wmshim")).into_iter().chain([shared]).collect()
}

/// In a user namespace without a number for this process's user.
fn unknown() -> String {
    let user = user::effective();
    format!(
        "no socket: users without a number in this user namespace all appear as user {user}, and this process is one of them; map its user \
         (`unshare --map-current-user`)"
    )
}

fn unusable(path: &Path, why: &str) -> String {
    format!("no socket in {}: it {why}; set WMSHIM_STATS_DIR to a directory of yours", path.display())
}

/// Creates the directory if it is missing, and checks it either way. Root may have another user's variables: only where the user named the
/// directory it is made in another user's folder.
fn prepare(path: &Path, is_named: bool, own: u32) -> Result<(), String> {
    let made = match fs::symlink_metadata(path) {
        Ok(_) => Ok(()),
        Err(_) if is_named => DirBuilder::new().mode(0o700).create(path),
        Err(_) => folder::make(path),
    };
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(format!("cannot be created: {error}"))
        }
        _ => check(path, own),
    }
}

fn check(path: &Path, own: u32) -> Result<(), String> {
    let status = fs::symlink_metadata(path).map_err(|error| format!("cannot be examined: {error}"))?;
    if status.is_symlink() {
        return Err("is a symbolic link".into());
    }
    if !status.is_dir() {
        return Err("is not a directory".into());
    }
    if status.uid() != own {
        return Err(format!("belongs to user {}", status.uid()));
    }
    if status.mode() & 0o022 != 0 {
        return Err(format!("can be written by others (mode {:o})", status.mode() & 0o7777));
    }
    Ok(())
}
