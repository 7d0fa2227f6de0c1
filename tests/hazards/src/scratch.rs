//! A folder of a test's own, removed when the test ends.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A fresh folder. Its path is short, because sockets are bound below it and their paths may have
/// 107 bytes.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes the folder.
    ///
    /// # Panics
    /// If the temporary folder cannot be written: no test can run then.
    #[allow(clippy::new_without_default, reason = "making a folder is no default")]
    pub fn new() -> Self {
        let template = std::env::temp_dir().join("wmhz-XXXXXX");
        let template = CString::new(template.as_os_str().as_bytes()).expect("a path").into_raw();
        // SAFETY: a writable NUL-terminated string that ends in six X, taken back below.
        let made = unsafe { libc::mkdtemp(template) };
        // SAFETY: `into_raw` gave this pointer; mkdtemp keeps the length.
        let path = unsafe { CString::from_raw(template) };
        assert!(!made.is_null(), "no scratch folder: {}", std::io::Error::last_os_error());
        Self(PathBuf::from(std::ffi::OsString::from_vec(path.into_bytes())))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A folder below, made if it is missing.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(&path).expect("a folder in the scratch folder");
        path
    }

    /// A file below with this content.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).expect("a file in the scratch folder");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that stays is no reason to fail.
        let _ = fs::remove_dir_all(&self.0);
    }
}
