//! Finds the real driver library, and never mistakes a copy of ourselves for it.
//!
//! The loader cannot be asked for `libcuda.so.1`: that name is ours (our SONAME). So the places are walked by hand, in
//! the loader's own order, and the library is opened by absolute path. A candidate is passed over when it is the
//! library that asks (same device and inode), another copy of it (it carries [`MARKER`]), or one of the toolkit's stubs.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cache;
use crate::loader::Loader;
use crate::table::Table;

/// Bytes that every build of the preloaded library contains and no driver does.
pub const MARKER: &[u8] = b"wmshim:this-library-is-the-interposer-and-not-a-driver";

const NAME: &str = "libcuda.so.1";

/// Where drivers live besides the loader's cache: distributions, containers, WSL, Jetson, NixOS.
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
    /// Every place that was looked at, with what was found there.
    pub searched: Vec<(PathBuf, String)>,
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

/// Opens the driver: `explicit` if given (then nothing else), else the first real one in the loader's order.
///
/// # Errors
/// [`NotFound`] with every place looked at.
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

fn try_open(loader: &Loader, path: &Path) -> Result<Table, String> {
    let path = match path.canonicalize() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err("not there".into()),
        // Where links may not be read, the loader may still open the file.
        canonical => canonical.unwrap_or_else(|_| path.to_owned()),
    };
    if is_interposer(&path) {
        return Err("is wmshim itself".into());
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
    let directories = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let directories: Vec<_> = std::env::split_paths(&directories).filter(|d| d.is_absolute()).collect();
    directories.into_iter().map(|directory| directory.join(NAME))
}

/// Is this file the preloaded library, under whatever name? Told by its content, so that a copy is known too.
pub fn is_interposer(path: &Path) -> bool {
    is_self(path) || carries_marker(path).unwrap_or(false)
}

fn is_self(path: &Path) -> bool {
    let Some((own, other)) = own_path().zip(fs::metadata(path).ok()) else { return false };
    fs::metadata(own).is_ok_and(|own| (own.dev(), own.ino()) == (other.dev(), other.ino()))
}

/// The file that this code was loaded from: in the preloaded library, the library itself.
pub fn own_path() -> Option<PathBuf> {
    // SAFETY: all zero is a valid Dl_info.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked about; the answer is written into our structure.
    if unsafe { libc::dladdr(own_path as *const () as *const _, &mut info) } == 0 || info.dli_fname.is_null()
    {
        return None;
    }
    // SAFETY: a non-null dli_fname is the loader's own NUL-terminated string.
    let name = unsafe { std::ffi::CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(name.to_string_lossy().into_owned()))
}

/// NVIDIA's library is far larger than ours; reading it through for a marker would cost tens of milliseconds.
const LARGEST_INTERPOSER: u64 = 32 << 20;

fn carries_marker(path: &Path) -> std::io::Result<bool> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() > LARGEST_INTERPOSER {
        return Ok(false);
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(contains(&content, MARKER))
}

/// glibc's search is a hundred times as fast as a plain loop in an unoptimised build, and this runs in every process.
fn contains(content: &[u8], wanted: &[u8]) -> bool {
    let (content, wanted) =
        ((content.as_ptr().cast(), content.len()), (wanted.as_ptr().cast(), wanted.len()));
    // SAFETY: two readable ranges of the lengths that are named.
    !unsafe { libc::memmem(content.0, content.1, wanted.0, wanted.1) }.is_null()
}
