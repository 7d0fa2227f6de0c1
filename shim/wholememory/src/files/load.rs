//! Reads files into the memory of all ranks: each rank reads the entries of its own part.
//!
//! Invariants: all ranks have looked at all files before any of them writes, and saw the same
//! sizes; they leave together, with the same code, when all of them have read. Threads live only as
//! long as the call.

use std::ffi::OsStr;
use std::fs::File;
use std::hash::Hasher;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::error::{Error, Result, require};
use crate::files::direct::DirectBuffer;
use crate::files::place::{Buffer, Entries, EntryShape};
use crate::files::plan::{FileRange, LoadPlan, whole_entries};
use crate::files::settings::ReadSettings;
use crate::files::slices::{Slices, are_all};
use crate::memory::Memory;

/// Files that a call may have, less one.
const TOO_MANY: usize = 65_536;

/// A request to load.
#[derive(Debug, Clone)]
pub struct LoadRequest {
    /// The shape of an entry.
    pub shape: EntryShape,
    /// The files, one after the other.
    pub files: Vec<PathBuf>,
    /// How many entries each rank gets in its turn; 0 without round robin.
    pub round_robin: u64,
}

/// Loads files. A collective call: a rank whose request is wrong says so to the others.
///
/// # Errors
/// [`Error::Input`] for requests that do not fit the memory or differ, and for files that
/// cannot be read or have no whole entries; [`Error::Value`] for more entries than there is room
/// for: nothing is written at any rank then. Otherwise the error of a read.
pub fn load(memory: &Memory, request: Result<LoadRequest>, settings: ReadSettings) -> Result {
    let communicator = memory.communicator();
    let planned = request.and_then(|request| plan(memory, request));
    let arguments = planned.as_ref().map(|(_, arguments)| arguments.clone()).unwrap_or_default();
    communicator.agree("load_from_file", planned.as_ref().map(drop).map_err(Clone::clone), &arguments)?;
    let (job, _) = planned?;
    let slices = job.slices(settings);
    loop {
        let read = job.read(&slices, settings, Instant::now() + communicator.patience() / 10);
        communicator.agree("load_from_file", read, &[])?;
        if are_all(communicator, "load_from_file", slices.is_over())? {
            return memory.forget_copies("load_from_file");
        }
    }
}

/// The work of this rank, and the values that must be alike on all ranks: all but the files' names.
fn plan(memory: &Memory, request: LoadRequest) -> Result<(LoadJob<'_>, Vec<u8>)> {
    let LoadRequest { shape, files, round_robin } = request;
    let row = memory.request().granularity;
    shape.check(row)?;
    require(!files.is_empty() && files.len() < TOO_MANY, &format!("{} files", files.len()))?;
    let counts = files.iter().map(|path| look_at(path, shape.bytes)).collect::<Result<Vec<_>>>()?;
    let parts: Vec<_> =
        memory.partition().starts().iter().map(|start| start * (row / shape.stride)).collect();
    let plan = LoadPlan::new(&counts, &parts, memory.communicator().rank(), round_robin)?;
    let mut sizes = SipHasher13::new();
    counts.iter().for_each(|count| sizes.write_u64(*count));
    let sizes = sizes.finish128().as_u128();
    let text = format!("{:?} {shape:?} {round_robin} {} {sizes:x}", memory.request(), files.len());
    Ok((LoadJob { plan, files, entries: Entries::new(memory, shape), bytes: shape.bytes }, text.into_bytes()))
}

/// How many entries a file has. One that is no file of bytes is refused without waiting for it.
fn look_at(path: &Path, entry: u64) -> Result<u64> {
    let wrong = |reason: String| Error::Input(format!("{}: {reason}", path.display()));
    require(path.as_os_str() != OsStr::new(""), "the name of a file is empty")?;
    let metadata = open(path).and_then(|file| file.metadata()).map_err(|error| wrong(error.to_string()))?;
    if !metadata.is_file() {
        return Err(wrong("not a regular file".to_owned()));
    }
    whole_entries(metadata.len(), entry).map_err(|error| match error {
        Error::Input(reason) => wrong(reason),
        error => error,
    })
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// The work of one rank.
struct LoadJob<'a> {
    plan: LoadPlan,
    files: Vec<PathBuf>,
    entries: Entries<'a>,
    /// Of an entry in a file.
    bytes: u64,
}

impl LoadJob<'_> {
    fn slices(&self, settings: ReadSettings) -> Slices {
        let all = self.plan.entries();
        Slices::new(all, (settings.buffer / self.bytes).min(all.div_ceil(settings.threads as u64)))
    }

    /// Reads for a time.
    fn read(&self, slices: &Slices, settings: ReadSettings, until: Instant) -> Result {
        if slices.is_over() {
            return Ok(());
        }
        let _entered = self.entries.enter()?;
        self.entries.settle()?;
        let read = slices.work(settings.threads, until, || {
            let (entered, mut reader) = (self.entries.enter()?, FileReader::new(self, settings.direct));
            Ok(move |place, count| {
                let _entered = &entered;
                reader.read(place, count)
            })
        });
        // A copy may return before its last bytes have arrived.
        read.and(self.entries.settle())
    }
}

/// One thread's file and buffer.
struct FileReader<'a> {
    job: &'a LoadJob<'a>,
    open: Option<OpenFile>,
    buffer: Buffer,
    /// Whether files are to be read past the kernel's cache.
    direct: bool,
    blocks: DirectBuffer,
}

/// A file of the list, and whether it is read past the kernel's cache.
struct OpenFile {
    number: usize,
    file: File,
    is_direct: bool,
}

impl<'a> FileReader<'a> {
    fn new(job: &'a LoadJob<'a>, direct: bool) -> Self {
        Self { job, open: None, buffer: Buffer::default(), direct, blocks: DirectBuffer::default() }
    }

    fn read(&mut self, place: u64, count: u64) -> Result {
        let (job, bytes) = (self.job, self.job.bytes);
        if job.entries.are_packed_on_host() && !self.direct {
            return job.plan.ranges(place, count).try_for_each(|range| {
                let file = &self.file(range.file)?.file;
                let read = job.entries.read(range.place, range.count, file, range.first * bytes);
                read.map_err(|error| self.failed(range, &error))
            });
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let part = buffer.of((count * bytes) as usize)?;
        let mut rest = &mut *part;
        for range in job.plan.ranges(place, count) {
            let (place, after) = rest.split_at_mut((range.count * bytes) as usize);
            self.copy(range, place)?;
            rest = after;
        }
        job.entries.put(place, part)?;
        self.buffer = buffer;
        Ok(())
    }

    /// The bytes of some entries of one file.
    fn copy(&mut self, range: FileRange, place: &mut [u8]) -> Result {
        let first = range.first * self.job.bytes;
        let mut blocks = std::mem::take(&mut self.blocks);
        let file = self.file(range.file)?;
        let read = if file.is_direct {
            blocks.read(&file.file, first, place.len())?.map(|bytes| place.copy_from_slice(bytes))
        } else {
            file.file.read_exact_at(place, first)
        };
        self.blocks = blocks;
        read.map_err(|error| self.failed(range, &error))
    }

    /// A file, which stays open until another one is wanted.
    fn file(&mut self, number: usize) -> Result<&OpenFile> {
        let found = match self.open.take() {
            Some(open) if open.number == number => open,
            _ => {
                let opened = self.open(&self.job.files[number]);
                let (file, is_direct) = opened.map_err(|error| self.error(number, &error.to_string()))?;
                OpenFile { number, file, is_direct }
            }
        };
        Ok(self.open.insert(found))
    }

    /// A file, and whether it is read past the kernel's cache.
    fn open(&self, path: &Path) -> io::Result<(File, bool)> {
        let mut direct = File::options();
        direct.read(true).custom_flags(libc::O_NONBLOCK | libc::O_DIRECT);
        match self.direct.then(|| direct.open(path)) {
            Some(Ok(file)) => Ok((file, true)),
            // The file system has no such reads.
            _ => Ok((open(path)?, false)),
        }
    }

    fn failed(&self, range: FileRange, error: &io::Error) -> Error {
        let (from, to) = (range.first * self.job.bytes, (range.first + range.count) * self.job.bytes);
        match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                self.error(range.file, &format!("it ends before byte {to}, and had more when the call began"))
            }
            _ => self.error(range.file, &format!("bytes {from} to {to}: {error}")),
        }
    }

    fn error(&self, number: usize, reason: &str) -> Error {
        Error::System(format!("{}: {reason}", self.job.files[number].display()))
    }
}
