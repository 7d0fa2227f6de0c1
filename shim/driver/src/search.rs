//! Finds the real driver library, and never a copy of ourselves.
//!
//! The loader cannot be asked for `libcuda.so.1`: that name is ours (our SONAME). So the places are
//! searched by hand, in the loader's own order, and the library is opened by absolute path. A
//! candidate is skipped if it is the searching library itself (same device and inode), another copy
//! of it (it carries the note), or one of the toolkit's stubs.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::cache;
use crate::interposer::is_interposer;
use crate::loader::{Loader, NotADriver};
use crate::table::Table;

const NAME: &str = "libcuda.so.1";

/// The places of drivers besides the loader's cache: distributions, containers, WSL, Jetson, NixOS.
const DIRECTORIES: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu/tegra",
    "/run/opengl-driver/lib",
    "/usr/local/cuda/compat",
];

/// No driver could be opened.
#[derive(Debug)]
pub struct NotFound {
    /// Every searched place, with the reason why it did not serve.
    pub searched: Vec<(PathBuf, NotADriver)>,
}

impl std::fmt::Display for NotFound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no CUDA driver found; searched")?;
        for (place, finding) in &self.searched {
            write!(f, " {} ({finding});", place.display())?;
        }
        write!(f, " set WMSHIM_DRIVER to the path of the real {NAME}")
    }
}

impl std::error::Error for NotFound {}

/// Opens the driver: only `explicit` if it is given, else the first real one in the loader's order.
///
/// # Errors
/// [`NotFound`] with every searched place.
pub fn open(loader: &Loader, explicit: Option<&Path>) -> Result<Table, NotFound> {
    let mut searched = Vec::new();
    for candidate in candidates(explicit) {
        match try_open(loader, &candidate) {
            Ok(table) => return Ok(table),
            Err(finding) => searched.push((candidate, finding)),
        }
    }
    Err(NotFound { searched })
}

fn try_open(loader: &Loader, path: &Path) -> Result<Table, NotADriver> {
    let path = match path.canonicalize() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(NotADriver::Missing),
        // If links may not be read, the loader may still open the file.
        canonical => canonical.unwrap_or_else(|_| path.to_owned()),
    };
    if is_interposer(&path) {
        return Err(NotADriver::Interposer);
    }
    Table::open(loader, &path)
}

/// Paths to try, in order, without repetition.
fn candidates(explicit: Option<&Path>) -> Vec<PathBuf> {
    if let Some(path) = explicit {
        let inside = path.is_dir().then(|| path.join(NAME));
        return vec![inside.unwrap_or_else(|| path.to_owned())];
    }
    let mut seen = HashSet::new();
    library_path()
        .chain(cache::lookup(NAME))
        .chain(DIRECTORIES.iter().map(|directory| Path::new(directory).join(NAME)))
        .filter(|path| !path.components().any(|part| part.as_os_str() == "stubs"))
        .filter(|path| seen.insert(path.clone()))
        .collect()
}

fn library_path() -> impl Iterator<Item = PathBuf> {
    let directories = wm_trust::environment::variable("LD_LIBRARY_PATH").unwrap_or_default();
    let directories: Vec<_> = std::env::split_paths(&directories).filter(|d| d.is_absolute()).collect();
    directories.into_iter().map(|directory| directory.join(NAME))
}
