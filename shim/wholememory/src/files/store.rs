//! Writes a rank's own entries to a file.
//!
//! All ranks make the call, each for a file of its own, and each has its own outcome. They meet before, so what others have written to
//! this rank's rows is there, and after, so each may read what the others have stored; a rank that fails comes as well.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Outcome, require};
use crate::files::place::{Entries, EntryShape, close};
use crate::memory::Memory;

/// Bytes that are copied at a time.
const BUFFER: u64 = 16 << 20;

/// What to store.
#[derive(Debug, Clone)]
pub struct StoreRequest {
    /// What of the memory goes to the file.
    pub shape: EntryShape,
    /// The file. One that there is is replaced.
    pub file: PathBuf,
}

/// Stores this rank's part. All ranks make the call.
///
/// # Errors
/// [`Error::Input`] for a request that does not fit the memory; [`Error::System`] for a file that cannot be written to its end: it has
/// some of the entries then. The others do not learn it.
pub fn store(memory: &Memory, request: Outcome<StoreRequest>) -> Outcome {
    memory.communicator().round("store_to_file", &[])?;
    let stored = request.and_then(|request| write(memory, &request));
    let met = memory.communicator().round("store_to_file", &[]).map(drop);
    stored.and(met)
}

fn write(memory: &Memory, request: &StoreRequest) -> Outcome {
    request.shape.check(memory.request().granularity)?;
    require(!request.file.as_os_str().is_empty(), "the name of the file is empty")?;
    let entries = Entries::new(memory, request.shape);
    let file = File::create(&request.file).map_err(|error| failed(&request.file, &error))?;
    if entries.count() > 0 {
        let _entered = entries.enter()?;
        entries.settle()?;
        write_all(&entries, request, &file)?;
    }
    close(file).map_err(|error| failed(&request.file, &error))
}

fn write_all(entries: &Entries<'_>, request: &StoreRequest, file: &File) -> Outcome {
    let (all, bytes) = (entries.count(), request.shape.bytes);
    if entries.are_packed_on_host() {
        return entries.write(0, all, file, 0).map_err(|error| failed(&request.file, &error));
    }
    let step = (BUFFER / bytes).clamp(1, all);
    let mut buffer = Vec::new();
    let reserved = buffer.try_reserve_exact((step * bytes) as usize);
    reserved
        .map_err(|_| Error::Memory(format!("a buffer of {} MiB to write a file", (step * bytes) >> 20)))?;
    buffer.resize((step * bytes) as usize, 0);
    for first in (0..all).step_by(step as usize) {
        let part = &mut buffer[..(step.min(all - first) * bytes) as usize];
        entries.take(first, part)?;
        file.write_all_at(part, first * bytes).map_err(|error| failed(&request.file, &error))?;
    }
    Ok(())
}

fn failed(file: &Path, error: &std::io::Error) -> Error {
    Error::System(format!("{}: {error}", file.display()))
}
