//! Writes a rank's own entries to a file.
//!
//! All ranks make the call, each for a file of its own. They meet before it, so that the rows that
//! others have written in this rank's part are there, and after it, so that each may read the files
//! that the others have stored. A store that fails at one rank fails at all, and every rank's old
//! file stays, except one that is written in place: the new files get their names when all of them
//! are complete on the disk.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::error::{Error, Result, require};
use crate::files::place::{Buffer, Entries, EntryShape};
use crate::files::replacement::{self, Replacement};
use crate::files::slices::{Slices, are_all};
use crate::memory::Memory;

/// The name of the call among ranks.
const CALL: &str = "store_to_file";
/// Bytes that are copied at a time.
const BUFFER: u64 = 16 << 20;
/// Of the thread that waits for the disk, in bytes.
const STACK: usize = 64 << 10;

/// A request to store.
#[derive(Debug, Clone)]
pub struct StoreRequest {
    /// The shape of an entry.
    pub shape: EntryShape,
    /// The file. One that there is is replaced, or written in place.
    pub file: PathBuf,
}

/// Stores this rank's part. All ranks make the call.
///
/// # Errors
/// [`Error::Input`] for a request that does not fit the memory; [`Error::System`] for a file that
/// cannot be written to its end; the error of another rank. The old files stay, unless a name could
/// not be given at the very end; a file that is written in place has lost its old bytes.
pub fn store(memory: &Memory, request: Result<StoreRequest>) -> Result {
    let communicator = memory.communicator();
    communicator.round(CALL, &[])?;
    let mut job = request.and_then(|request| StoreJob::begin(memory, request));
    loop {
        job = job.and_then(|job| job.work(Instant::now() + communicator.patience() / 10));
        let is_over = job.as_ref().map_or(true, StoreJob::is_complete);
        if are_all(communicator, CALL, is_over)? {
            break;
        }
    }
    let trace = job.as_ref().map_err(Clone::clone).and_then(StoreJob::trace);
    communicator.agree(CALL, trace.as_ref().map(drop).map_err(Clone::clone), &[])?;
    let traces = communicator.round(CALL, &trace?)?;
    let named = communicator.agree(CALL, job.and_then(StoreJob::end), &[]);
    if matches!(named, Err(Error::Communication(_))) {
        traces.iter().for_each(|trace| replacement::remove(&trace.bytes));
    }
    named
}

/// The work of one rank.
struct StoreJob<'a> {
    entries: Entries<'a>,
    /// Of an entry in the file.
    bytes: u64,
    path: PathBuf,
    file: Replacement,
    slices: Slices,
    disk: Disk,
}

/// Are the bytes on the disk?
enum Disk {
    NotYet,
    /// A thread waits for the disk, while this rank meets the others.
    Waiting(Mutex<Receiver<std::io::Result<()>>>),
    Complete,
}

impl<'a> StoreJob<'a> {
    fn begin(memory: &'a Memory, request: StoreRequest) -> Result<Self> {
        let StoreRequest { shape, file: path } = request;
        shape.check(memory.request().granularity)?;
        require(!path.as_os_str().is_empty(), "the name of the file is empty")?;
        let file = Replacement::begin(&path).map_err(|error| failed(&path, &error))?;
        let entries = Entries::new(memory, shape);
        let slices = Slices::new(entries.count(), BUFFER / shape.bytes);
        Ok(Self { entries, bytes: shape.bytes, path, file, slices, disk: Disk::NotYet })
    }

    fn is_complete(&self) -> bool {
        matches!(self.disk, Disk::Complete)
    }

    /// Writes for a time, and then waits for the disk.
    fn work(mut self, until: Instant) -> Result<Self> {
        if !self.slices.is_over() {
            let _entered = self.entries.enter()?;
            self.entries.settle()?;
            self.slices.work(1, until, || {
                let mut buffer = Buffer::default();
                let job = &self;
                Ok(move |first, count| job.write_slice(first, count, &mut buffer))
            })?;
        }
        if self.slices.is_over() {
            self.disk = self.settle(until).map_err(|error| failed(&self.path, &error))?;
        }
        Ok(self)
    }

    fn settle(&mut self, until: Instant) -> std::io::Result<Disk> {
        let settled = match std::mem::replace(&mut self.disk, Disk::NotYet) {
            Disk::Complete => return Ok(Disk::Complete),
            Disk::Waiting(settled) => settled.into_inner().unwrap_or_else(PoisonError::into_inner),
            Disk::NotYet => {
                let (tell, settled) = channel();
                let settle = self.file.settling()?;
                let wait = move || drop(tell.send(settle()));
                if wm_driver::thread::spawn(c"wm-store", STACK, wait).is_err() {
                    return self.file.settling()?().map(|()| Disk::Complete);
                }
                settled
            }
        };
        match settled.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(outcome) => outcome.map(|()| Disk::Complete),
            Err(RecvTimeoutError::Timeout) => Ok(Disk::Waiting(Mutex::new(settled))),
            Err(RecvTimeoutError::Disconnected) => {
                Err(std::io::Error::other("the file was not synchronized"))
            }
        }
    }

    fn write_slice(&self, first: u64, count: u64, buffer: &mut Buffer) -> Result {
        let to = first * self.bytes;
        let file = self.file.file().map_err(|error| failed(&self.path, &error))?;
        let written = if self.entries.are_packed_on_host() {
            self.entries.write(first, count, file, to)
        } else {
            let part = buffer.of((count * self.bytes) as usize)?;
            self.entries.get(first, part)?;
            file.write_all_at(part, to)
        };
        written.map_err(|error| failed(&self.path, &error))
    }

    fn trace(&self) -> Result<Vec<u8>> {
        self.file.trace().map_err(|error| failed(&self.path, &error))
    }

    fn end(self) -> Result {
        self.file.finish().map_err(|error| failed(&self.path, &error))
    }
}

fn failed(file: &Path, error: &std::io::Error) -> Error {
    Error::System(format!("{}: {error}", file.display()))
}
