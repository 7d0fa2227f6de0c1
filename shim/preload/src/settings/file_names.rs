//! File names with marks in them, for all settings that name files: `%p` is the process.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A file's name with the process in it.
pub(crate) fn with_process(template: &Path, process: u32) -> PathBuf {
    replace(template, "%p", &process.to_string())
}

/// A path with every `mark` replaced; its other bytes may be any.
pub(crate) fn replace(path: &Path, mark: &str, with: &str) -> PathBuf {
    let (mut rest, mut replaced) = (path.as_os_str().as_bytes(), Vec::new());
    while let Some(at) = rest.windows(mark.len()).position(|window| window == mark.as_bytes()) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(with.as_bytes());
        rest = &rest[at + mark.len()..];
    }
    replaced.extend_from_slice(rest);
    OsString::from_vec(replaced).into()
}
