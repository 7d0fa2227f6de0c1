//! Statistics as files: what the signal and the request `dump` write.
//!
//! `<pid>-<n>.json`, readable by the user alone. A file appears under its name when it is complete. The folder is often
//! memory, so a process keeps no more than [`MOST`] of them there.

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

    /// Writes everything the source knows. Returns the file's path.
    ///
    /// # Errors
    /// A sentence that names the path and the reason.
    pub(super) fn write(&mut self, source: &dyn Source) -> Result<PathBuf, String> {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let content = json!({
            "schema": "wmshim-dump/1",
            "written_unix_s": seconds,
            "stats": source.audited(),
            "blocks": source.blocks(),
            "config": source.config(),
        });
        if self.kept() >= MOST {
            let folder = self.directory.display();
            return Err(format!("no dump: {MOST} of this process are in {folder}; remove some"));
        }
        let path = self.fresh_name();
        store(&path, &content).map_err(|error| format!("no dump at {}: {error}", path.display()))?;
        Ok(path)
    }

    /// Files that this process has there now.
    fn kept(&self) -> usize {
        let prefix = format!("{}-", std::process::id());
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        let ours = |name: &str| name.starts_with(&prefix) && name.ends_with(".json");
        entries.filter(|entry| entry.file_name().to_str().is_some_and(ours)).count()
    }

    /// The next name that no earlier process of the same id has used, nor anybody else for a file that is being written.
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

/// The final statistics of this process, as a file that was not there before; `%p` in its name is the process.
///
/// # Errors
/// A sentence that names the path and the remedy.
pub(super) fn leave(template: &Path, words: &[u8]) -> Result<(), String> {
    let path = with_process(template, std::process::id());
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    made.and_then(|mut file| file.write_all(words)).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            format!(
                "{} exists and is left as it is: put %p into the name for a file a process",
                path.display()
            )
        }
        _ => format!("{} cannot be written ({error}): name a file in a folder of yours", path.display()),
    })
}

/// Where a file is until it is complete.
fn draft(path: &Path) -> PathBuf {
    path.with_extension("json.new")
}

/// Writes a new file. The folder is the user's, and so is whatever lies there already.
fn store(path: &Path, content: &serde_json::Value) -> io::Result<()> {
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
