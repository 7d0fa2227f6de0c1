//! Reads files into the memory of all ranks: each rank what its own part gets.
//!
//! Invariants: all ranks have looked at all files before any of them writes, and saw the same sizes; they leave together, with the same
//! code, when all of them have read. Threads live only as long as the call.

use std::ffi::OsStr;
use std::fs::File;
use std::hash::Hasher;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::error::{Error, Outcome, require};
use crate::files::place::{Entries, EntryShape};
use crate::files::plan::{FileRange, LoadPlan, whole_entries};
use crate::files::settings::ReadSettings;
use crate::memory::Memory;

/// Files that a call may have, less one.
const TOO_MANY: usize = 65_536;

/// What to load.
#[derive(Debug, Clone)]
pub struct LoadRequest {
    /// What of the memory gets the files' bytes.
    pub shape: EntryShape,
    /// The files, one after the other.
    pub files: Vec<PathBuf>,
    /// How many entries each rank gets in its turn; 0 without round robin.
    pub round_robin: u64,
}

/// Loads files. A collective call: a rank whose request is wrong says so to the others.
///
/// # Errors
/// [`Error::Input`] for requests that do not fit the memory or differ, and for files that cannot be read or have no whole entries;
/// [`Error::Value`] for more entries than there is room for: nothing is written at any rank then. Else what went wrong in reading.
pub fn load(memory: &Memory, request: Outcome<LoadRequest>, settings: ReadSettings) -> Outcome {
    let communicator = memory.communicator();
    let planned = request.and_then(|request| plan(memory, request));
    let arguments = planned.as_ref().map(|(_, arguments)| arguments.clone()).unwrap_or_default();
    communicator.agree("load_from_file", planned.as_ref().map(drop).map_err(Clone::clone), &arguments)?;
    let loaded = planned.and_then(|(job, _)| job.run(settings));
    communicator.agree("load_from_file", loaded, &[])
}

/// What this rank will do, and what has to be alike on all ranks: everything but the files' names.
fn plan(memory: &Memory, request: LoadRequest) -> Outcome<(Job<'_>, Vec<u8>)> {
    let LoadRequest { shape, files, round_robin } = request;
    let row = memory.request().granularity;
    shape.check(row)?;
    require(!files.is_empty() && files.len() < TOO_MANY, &format!("{} files", files.len()))?;
    let counts = files.iter().map(|path| look_at(path, shape.bytes)).collect::<Outcome<Vec<_>>>()?;
    let parts: Vec<_> =
        memory.partition().starts().iter().map(|start| start * (row / shape.stride)).collect();
    let plan = LoadPlan::new(&counts, &parts, memory.communicator().rank(), round_robin)?;
    let mut sizes = SipHasher13::new();
    counts.iter().for_each(|count| sizes.write_u64(*count));
    let sizes = sizes.finish128().as_u128();
    let text = format!("{:?} {shape:?} {round_robin} {} {sizes:x}", memory.request(), files.len());
    Ok((Job { plan, files, entries: Entries::new(memory, shape), bytes: shape.bytes }, text.into_bytes()))
}

/// How many entries a file has. One that is no file of bytes is refused without waiting for it.
fn look_at(path: &Path, entry: u64) -> Outcome<u64> {
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

/// What one rank has to read.
struct Job<'a> {
    plan: LoadPlan,
    files: Vec<PathBuf>,
    entries: Entries<'a>,
    /// Of an entry in a file.
    bytes: u64,
}

/// What is left of it.
struct Progress {
    next: AtomicU64,
    /// A thread has failed: the others need not go on.
    is_over: AtomicBool,
    /// Entries that a thread takes at a time.
    step: u64,
}

impl Job<'_> {
    fn run(&self, settings: ReadSettings) -> Outcome {
        let all = self.plan.entries();
        if all == 0 {
            return Ok(());
        }
        let _entered = self.entries.enter()?;
        self.entries.settle()?;
        let step = (settings.buffer / self.bytes).min(all.div_ceil(settings.threads as u64)).max(1);
        let progress = Progress { next: AtomicU64::new(0), is_over: AtomicBool::new(false), step };
        // The calling thread is one of them.
        let others = all.div_ceil(step).min(settings.threads as u64) - 1;
        let read = thread::scope(|scope| {
            let start = |_| thread::Builder::new().spawn_scoped(scope, || self.read_parts(&progress));
            // Where no more can be started, those that there are do it all.
            let threads: Vec<_> = (0..others).map_while(|number| start(number).ok()).collect();
            let own = self.read_parts(&progress);
            let fault = || Err(Error::System("a thread that reads has panicked".to_owned()));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| fault())).fold(own, Result::and)
        });
        // A copy may return before its last bytes have arrived.
        read.and(self.entries.settle())
    }

    /// Reads part after part until none is left.
    fn read_parts(&self, progress: &Progress) -> Outcome {
        let read = self.entries.enter().and_then(|_entered| {
            let mut reader = FileReader { job: self, open: None, buffer: Vec::new() };
            while !progress.is_over.load(Ordering::Relaxed) {
                let place = progress.next.fetch_add(progress.step, Ordering::Relaxed);
                if place >= self.plan.entries() {
                    break;
                }
                reader.read(place, progress.step.min(self.plan.entries() - place))?;
            }
            Ok(())
        });
        if read.is_err() {
            progress.is_over.store(true, Ordering::Relaxed);
        }
        read
    }
}

/// One thread's file and buffer.
struct FileReader<'a> {
    job: &'a Job<'a>,
    open: Option<(usize, File)>,
    buffer: Vec<u8>,
}

impl FileReader<'_> {
    fn read(&mut self, place: u64, count: u64) -> Outcome {
        let (job, bytes) = (self.job, self.job.bytes);
        if job.entries.are_packed_on_host() {
            return job.plan.ranges(place, count).try_for_each(|range| {
                let file = self.file(range.file)?;
                let read = job.entries.read(range.place, range.count, file, range.first * bytes);
                read.map_err(|error| self.failed(range, &error))
            });
        }
        self.grow((count * bytes) as usize)?;
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut rest = &mut buffer[..(count * bytes) as usize];
        for range in job.plan.ranges(place, count) {
            let (part, after) = rest.split_at_mut((range.count * bytes) as usize);
            let read = self.file(range.file)?.read_exact_at(part, range.first * bytes);
            read.map_err(|error| self.failed(range, &error))?;
            rest = after;
        }
        self.buffer = buffer;
        job.entries.put(place, &self.buffer[..(count * bytes) as usize])
    }

    fn grow(&mut self, bytes: usize) -> Outcome {
        let more = bytes.saturating_sub(self.buffer.len());
        let grown = self.buffer.try_reserve_exact(more);
        grown.map_err(|_| Error::Memory(format!("a buffer of {} MiB to read files", bytes >> 20)))?;
        self.buffer.resize(self.buffer.len() + more, 0);
        Ok(())
    }

    /// A file, which stays open until another one is wanted.
    fn file(&mut self, number: usize) -> Outcome<&File> {
        let found = match self.open.take() {
            Some((other, file)) if other == number => file,
            _ => open(&self.job.files[number]).map_err(|error| self.error(number, &error.to_string()))?,
        };
        Ok(&self.open.insert((number, found)).1)
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
