//! Statistics as files, which the signal and the request `dump` write.
//!
//! `<pid>-<n>.json`, readable by the user alone. A file appears under its name when it is complete.
//! The folder is often memory, so a process keeps no more than [`MOST`] of them there.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::Source;
use crate::settings::with_process;

/// Files of one process that may lie in the folder.
const MOST: usize = 100;

/// Why there is no dump.
#[derive(Debug, thiserror::Error)]
pub(super) enum DumpError {
    #[error("no dump: {MOST} of this process are in {}; remove some", .0.display())]
    TooMany(PathBuf),
    #[error("no dump at {}: {error}", .path.display())]
    Unwritten { path: PathBuf, error: io::Error },
}

/// Writes numbered files into one directory.
#[derive(Debug)]
pub(super) struct Dumps {
    directory: PathBuf,
    next: u32,
}

impl Dumps {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, next: 1 }
    }

    /// Writes everything that the source knows. Returns the file's path.
    pub(super) fn write(&mut self, source: &dyn Source) -> Result<PathBuf, DumpError> {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let content = json!({
            "schema": "wmshim-dump/1",
            "written_unix_s": seconds,
            "stats": source.audited(),
            "blocks": source.blocks(),
            "config": source.config(),
        });
        if self.count() >= MOST {
            return Err(DumpError::TooMany(self.directory.clone()));
        }
        let path = self.fresh_name();
        match store(&path, &content) {
            Ok(()) => Ok(path),
            Err(error) => Err(DumpError::Unwritten { path, error }),
        }
    }

    /// Files of this process that are in the folder now.
    fn count(&self) -> usize {
        let prefix = format!("{}-", std::process::id());
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let ours = |name: &str| name.starts_with(&prefix) && name.ends_with(".json");
        entries.filter(|entry| entry.file_name().to_str().is_some_and(ours)).count()
    }

    /// The next name that is free, and whose draft's name is free. An earlier process may have had
    /// the same id.
    fn fresh_name(&mut self) -> PathBuf {
        loop {
            let path = self.directory.join(format!("{}-{}.json", std::process::id(), self.next));
            self.next += 1;
            if [&path, &draft(&path)].iter().all(|name| fs::symlink_metadata(name).is_err()) {
                return path;
            }
        }
    }
}

/// Why the final statistics are in no file.
#[derive(Debug, thiserror::Error)]
pub(super) enum FinalFileError {
    #[error("{} exists and is left as it is: put %p into the name for a file a process", .0.display())]
    Exists(PathBuf),
    #[error("{} cannot be written ({error}): name a file in a folder of yours", .path.display())]
    Unwritable { path: PathBuf, error: io::Error },
}

/// Writes the final statistics of this process to a new file; `%p` in its name is the process.
pub(super) fn write_final(template: &Path, statistics: &[u8]) -> Result<(), FinalFileError> {
    let path = with_process(template, std::process::id());
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    made.and_then(|mut file| file.write_all(statistics)).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => FinalFileError::Exists(path),
        _ => FinalFileError::Unwritable { path, error },
    })
}

/// Where a file is until it is complete.
fn draft(path: &Path) -> PathBuf {
    path.with_extension("json.new")
}

/// Writes a new file, which appears when it is complete. The folder is the user's, and so is
/// whatever lies there already.
pub(crate) fn store(path: &Path, content: &serde_json::Value) -> io::Result<()> {
    let draft = draft(path);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = fill(file, content).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

fn fill(mut file: fs::File, content: &serde_json::Value) -> io::Result<()> {
    file.write_all(content.to_string().as_bytes())?;
    file.write_all(b"\n")
}
