//! The files that programs left at an out-of-memory, in this shell's folders.
//!
//! Their names have the number of the process. While a process of that number runs, its files stay:
//! it may be another one, and then they stay a while longer.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use wm_schema::OutOfMemory;
use wm_trust::incarnation::Incarnation;

use super::folder::{Folder, FolderFile};

/// Files of a folder by processes that have ended, which have at least this age.
pub(super) fn left_in(folder: &Arc<Folder>, age: Duration) -> Vec<FolderFile> {
    let names = folder.names();
    let dead = names.iter().filter(|name| {
        OutOfMemory::process_of(name).is_some_and(|pid| Incarnation::of(&pid.to_string()).is_none())
    });
    let files = dead.filter_map(|name| FolderFile::find(folder, name));
    files.filter(|file| is_old(file, age).unwrap_or(false)).collect()
}

/// A file from the future is as old as one of now.
fn is_old(file: &FolderFile, age: Duration) -> io::Result<bool> {
    let written = file.open()?.metadata()?.modified()?;
    Ok(SystemTime::now().duration_since(written).unwrap_or_default() >= age)
}
