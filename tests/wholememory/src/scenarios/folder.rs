//! A folder of all ranks for files of a scenario. Rank 0 makes it, and removes it with its content.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::rank::{Rank, Verdict};

/// A folder that only these ranks have.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    is_own: bool,
}

impl Folder {
    /// Makes it. All ranks call this.
    pub(super) fn new(rank: &Rank) -> Verdict<Self> {
        let name: String = rank.id.0[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let folder = Self {
            path: std::env::temp_dir().join(format!("wholememory-suite-{name}")),
            is_own: rank.number == 0,
        };
        if folder.is_own {
            fs::create_dir_all(&folder.path)
                .map_err(|error| format!("{}: {error}", folder.path.display()))?;
        }
        rank.barrier()?;
        Ok(folder)
    }

    /// Removes it after all ranks have finished.
    pub(super) fn end(self, rank: &Rank) -> Verdict {
        rank.barrier()
    }

    /// A path in it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The same as a C string.
    pub(super) fn name(&self, name: &str) -> CString {
        c_name(&self.path(name))
    }

    /// Writes a file, at rank 0.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Verdict {
        if self.is_own {
            fs::write(self.path(name), bytes).map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_own {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// A path as a C string.
pub(super) fn c_name(path: &Path) -> CString {
    CString::new(path.as_os_str().as_encoded_bytes()).unwrap_or_default()
}
