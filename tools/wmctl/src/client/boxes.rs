//! Black boxes: the files in which processes keep their figures, of living processes and of dead
//! ones.
//!
//! A process is not asked and does not notice. Its file is found as its socket is: in the folders
//! of this shell, or in those that its own variables name. Whether the process lives, the kernel
//! says: number, time of the start and stack must be those that the file names. A file in which the
//! number is of another namespace is found through its process alone.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use wm_schema::black_box::{BlackBox, BlackBoxError, BlackBoxReading, PastSample};
use wm_schema::{BytesByTier, Stats};
use wm_trust::file;
use wm_trust::incarnation::Incarnation;

use super::folder::{Folder, FolderFile, Unusable};
use super::processes::RunningProcess;

/// The end of each file's name; the number and its namespace stand before it.
const ENDING: &str = ".box";
/// Readings of one file, until two in a row agree.
const ATTEMPTS: usize = 4;

/// A box that was read.
#[derive(Debug, Clone)]
pub(crate) struct ReadBox {
    /// The process, as this one numbers it.
    pub(crate) pid: u32,
    /// As people name it.
    pub(crate) path: PathBuf,
    pub(crate) reading: BlackBoxReading,
    pub(crate) is_stopped: bool,
    file: FolderFile,
}

/// All boxes in the folders that were looked into.
#[derive(Debug, Default)]
pub(crate) struct FoundBoxes {
    pub(crate) alive: Vec<ReadBox>,
    pub(crate) dead: Vec<ReadBox>,
    /// Files of dead processes that have no figures: never finished, or of another version.
    pub(crate) unread: Vec<FolderFile>,
    /// Files that cannot be read, and why.
    pub(crate) problems: Vec<String>,
}

/// What the file says. Twice in a row the same, unless the process writes it all the time, or was
/// ended while it did: then the figures may be of two moments.
fn read(file: &FolderFile) -> io::Result<Result<BlackBoxReading, BlackBoxError>> {
    let file = file.open()?;
    let mut bytes = file::beginning(&file, BlackBox::FIGURES)?;
    for _ in 0..ATTEMPTS {
        let again = file::beginning(&file, BlackBox::FIGURES)?;
        let is_torn = BlackBoxReading::is_torn(&bytes, &again);
        bytes = again;
        if !is_torn {
            break;
        }
    }
    Ok(BlackBoxReading::parse(&bytes))
}

impl ReadBox {
    /// Removes the file of a dead process.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn remove(&self) -> io::Result<()> {
        self.file.remove()
    }

    /// The whole file, with its rings.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn whole(&self) -> io::Result<Vec<u8>> {
        file::beginning(&self.file.open()?, BlackBox::BYTES)
    }

    /// The figures. The time that the process is up counts to now while it lives.
    pub(crate) fn stats(&self, lives: bool) -> Stats {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let up = now.saturating_sub(self.reading.process.made_ns.into()) as f64 / 1e9;
        let noted = self.reading.stats.uptime_s;
        Stats { uptime_s: if lives { up } else { noted }, pid: self.pid, ..self.reading.stats.clone() }
    }

    /// The live bytes of the last minute's seconds, the oldest first, each with its time in seconds
    /// since 1970. Empty if the file is gone.
    pub(crate) fn past(&self) -> Vec<(u64, BytesByTier)> {
        let made = self.reading.process.made_ns / 1_000_000_000;
        let file = self.file.open().and_then(|file| file::beginning(&file, BlackBox::BYTES));
        let [seconds, _] = BlackBoxReading::samples(&file.unwrap_or_default());
        seconds.into_iter().map(|PastSample { at, live }| (made.saturating_add(at), live)).collect()
    }

    /// Does it belong to a run of `wmctl run --stats`?
    pub(crate) fn is_of_run(&self, run: [u64; 2]) -> bool {
        [self.reading.process.run_high, self.reading.process.run_low] == run
    }
}

/// The folders in which boxes may be: those of sockets, and memory.
pub(crate) fn places(sockets: Vec<PathBuf>, user: u32, is_named: bool) -> Vec<PathBuf> {
    let memory = (!is_named).then(|| wm_trust::folder::in_memory(user));
    sockets.into_iter().chain(memory).collect()
}

/// Reads all boxes in these folders. `user`: the owner that a folder must have; `None`: any.
pub(crate) fn in_folders(folders: &[PathBuf], user: Option<u32>) -> FoundBoxes {
    let mut found = FoundBoxes::default();
    let own = namespace_of("self");
    for path in folders {
        match Folder::private(None, path, user) {
            Ok(folder) => look_into(&Arc::new(folder), own, &mut found),
            Err(Unusable::Missing) => {}
            Err(Unusable::Refused(problem)) => found.problems.push(problem),
        }
    }
    found
}

fn look_into(folder: &Arc<Folder>, own: Option<u64>, found: &mut FoundBoxes) {
    // A number of another machine's process means nothing here.
    if folder.is_remote() {
        return;
    }
    for name in folder.names() {
        let Some((pid, namespace)) = numbers(&name) else { continue };
        let Some(file) = FolderFile::find(folder, &name).filter(|_| Some(namespace) == own) else {
            continue;
        };
        let living = Incarnation::of(&pid.to_string());
        match read(&file) {
            Ok(Ok(reading)) => {
                let living = living.filter(|it| it.is(reading.process.started_ticks, reading.process.stack));
                let is_stopped = living.is_some_and(|it| it.is_stopped);
                let list = if living.is_some() { &mut found.alive } else { &mut found.dead };
                list.push(ReadBox { pid, path: file.path(), reading, is_stopped, file });
            }
            // A living process has been making it, or will not change it any more.
            Ok(Err(BlackBoxError::Unfinished)) if living.is_some() => {}
            Ok(Err(error)) => {
                if living.is_none() {
                    found.unread.push(file.clone());
                }
                if error != BlackBoxError::Unfinished {
                    found.problems.push(format!("{} {error}", file.path().display()));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => found.problems.push(format!("{} cannot be read: {error}", file.path().display())),
        }
    }
}

/// The number and the namespace in a file's name.
fn numbers(name: &str) -> Option<(u32, u64)> {
    let (pid, namespace) = name.strip_suffix(ENDING)?.split_once('-')?;
    Some((pid.parse().ok()?, namespace.parse().ok()?))
}

fn namespace_of(process: &str) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(Path::new("/proc").join(process).join("ns/pid")).ok().map(|namespace| namespace.ino())
}

/// The file of a living process, in the folders that its variables name.
pub(crate) fn of_process(process: &RunningProcess, folders: &[PathBuf]) -> Option<(u32, FolderFile)> {
    let namespace = namespace_of(&process.pid.to_string())?;
    let name = format!("{}-{namespace}{ENDING}", process.inner);
    let absolute = folders.iter().filter(|path| path.is_absolute());
    let mut opened =
        absolute.filter_map(|path| Folder::private(process.root.as_deref(), path, Some(process.user)).ok());
    let file = opened.find_map(|folder| FolderFile::find(&Arc::new(folder), &name))?;
    Some((process.pid, file))
}

/// Reads the file of a process, if the process lives and is the one that wrote it.
pub(crate) fn read_living(pid: u32, file: &FolderFile) -> Option<ReadBox> {
    let reading = read(file).ok()?.ok()?;
    let living = Incarnation::of(&pid.to_string())?;
    let is_it = living.is(reading.process.started_ticks, reading.process.stack);
    is_it.then(|| ReadBox {
        pid,
        path: file.path(),
        reading,
        is_stopped: living.is_stopped,
        file: file.clone(),
    })
}

/// Of several files of one process the one that was made last: a process can have had another
/// folder before.
pub(crate) fn latest(boxes: impl IntoIterator<Item = ReadBox>) -> Vec<ReadBox> {
    let mut all: BTreeMap<u32, ReadBox> = BTreeMap::new();
    for one in boxes {
        let is_later = |known: &ReadBox| known.reading.process.made_ns < one.reading.process.made_ns;
        if all.get(&one.pid).is_none_or(is_later) {
            all.insert(one.pid, one);
        }
    }
    all.into_values().collect()
}
