//! Statistics as files: what the signal and the request `dump` write.
//!
//! `<pid>-<n>.json`, readable by the user alone. A file appears under its name when it is complete.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::Source;

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
        let path = self.fresh_name();
        store(&path, &content).map_err(|error| format!("no dump at {}: {error}", path.display()))?;
        Ok(path)
    }

    /// The next name that no earlier process of the same id has used.
    fn fresh_name(&mut self) -> PathBuf {
        loop {
            let path = self.directory.join(format!("{}-{}.json", std::process::id(), self.next));
            self.next += 1;
            if fs::symlink_metadata(&path).is_err() {
                return path;
            }
        }
    }
}

fn store(path: &Path, content: &serde_json::Value) -> io::Result<()> {
    let temporary = path.with_extension("json.new");
    let written = fill(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn fill(path: &Path, content: &serde_json::Value) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    file.write_all(content.to_string().as_bytes())?;
    file.write_all(b"\n")
}
