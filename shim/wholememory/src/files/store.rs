//! Writes a rank's own entries to a file.
//!
//! All ranks make the call, each for a file of its own, and each has its own outcome. They meet
//! before it, so that the rows that others have written in this rank's part are there, and after
//! it, so that each may read the files that the others have stored. A rank that fails meets the
//! others as well.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::error::{Error, Result, require};
use crate::files::place::{Buffer, Entries, EntryShape, close};
use crate::files::slices::{Slices, are_all};
use crate::memory::Memory;

/// The name of the call among ranks.
const CALL: &str = "store_to_file";
/// Bytes that are copied at a time.
const BUFFER: u64 = 16 << 20;

/// A request to store.
#[derive(Debug, Clone)]
pub struct StoreRequest {
    /// The shape of an entry.
    pub shape: EntryShape,
    /// The file. One that there is is replaced.
    pub file: PathBuf,
}

/// Stores this rank's part. All ranks make the call.
///
/// # Errors
/// [`Error::Input`] for a request that does not fit the memory; [`Error::System`] for a file that
/// cannot be written to its end: it has some of the entries then. The others do not learn it.
pub fn store(memory: &Memory, request: Result<StoreRequest>) -> Result {
    let communicator = memory.communicator();
    communicator.round(CALL, &[])?;
    let mut job = request.and_then(|request| StoreJob::begin(memory, request).map(Some));
    loop {
        job = match job {
            Ok(Some(job)) => job.write(Instant::now() + communicator.patience() / 10),
            ended => ended,
        };
        if are_all(communicator, CALL, !matches!(job, Ok(Some(_))))? {
            return job.map(drop);
        }
    }
}

/// The work of one rank.
struct StoreJob<'a> {
    entries: Entries<'a>,
    /// Of an entry in the file.
    bytes: u64,
    path: PathBuf,
    file: File,
    slices: Slices,
}

impl<'a> StoreJob<'a> {
    fn begin(memory: &'a Memory, request: StoreRequest) -> Result<Self> {
        let StoreRequest { shape, file: path } = request;
        shape.check(memory.request().granularity)?;
        require(!path.as_os_str().is_empty(), "the name of the file is empty")?;
        let file = File::create(&path).map_err(|error| failed(&path, &error))?;
        let entries = Entries::new(memory, shape);
        let slices = Slices::new(entries.count(), BUFFER / shape.bytes);
        Ok(Self { entries, bytes: shape.bytes, path, file, slices })
    }

    /// Writes for a time. Returns the work that is left, if there is any.
    fn write(self, until: Instant) -> Result<Option<Self>> {
        if !self.slices.is_over() {
            let _entered = self.entries.enter()?;
            self.entries.settle()?;
            self.slices.work(1, until, || {
                let mut buffer = Buffer::default();
                let job = &self;
                Ok(move |first, count| job.write_slice(first, count, &mut buffer))
            })?;
        }
        if self.slices.is_over() { self.end().map(|()| None) } else { Ok(Some(self)) }
    }

    fn write_slice(&self, first: u64, count: u64, buffer: &mut Buffer) -> Result {
        let to = first * self.bytes;
        let written = if self.entries.are_packed_on_host() {
            self.entries.write(first, count, &self.file, to)
        } else {
            let part = buffer.of((count * self.bytes) as usize)?;
            self.entries.get(first, part)?;
            self.file.write_all_at(part, to)
        };
        written.map_err(|error| failed(&self.path, &error))
    }

    fn end(self) -> Result {
        close(self.file).map_err(|error| failed(&self.path, &error))
    }
}

fn failed(file: &Path, error: &std::io::Error) -> Error {
    Error::System(format!("{}: {error}", file.display()))
}
