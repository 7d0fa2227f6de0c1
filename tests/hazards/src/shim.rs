//! The library under test, laid out as it is installed. Each layout is made once a scratch folder.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::{Host, Scratch, places};

/// The file alone, as `cargo build` leaves it: all that `LD_PRELOAD=path` needs.
pub fn alone(scratch: &Scratch) -> PathBuf {
    copy(scratch.folder("alone").join("libwmshim.so"))
}

/// As in `dist/lib`: the file, and beside it a link `libcuda.so` by which the loader learns that
/// name.
pub fn installed(scratch: &Scratch) -> PathBuf {
    let file = copy(scratch.folder("lib").join("libwmshim.so"));
    link("libwmshim.so", &file.with_file_name("libcuda.so"));
    file
}

/// As in `dist/dropin`: the file under the driver's own names. For `LD_LIBRARY_PATH`; returns the
/// folder.
pub fn drop_in(scratch: &Scratch) -> PathBuf {
    let folder = scratch.folder("dropin");
    copy(folder.join("libcuda.so.1"));
    link("libcuda.so.1", &folder.join("libcuda.so"));
    folder
}

/// As in a wheel, which is a zip and has no links: the file alone, and here in a folder with a
/// blank in its name.
pub fn wheel(scratch: &Scratch) -> PathBuf {
    copy(scratch.folder("my wheel/lib").join("libwmshim.so"))
}

/// A copy, not a link: the loader and the shim identify files by inode, and the product's own
/// folder may have other files.
fn copy(to: PathBuf) -> PathBuf {
    if !to.exists() {
        fs::copy(places::shim(), &to).expect("a copy of libwmshim.so");
    }
    to
}

fn link(target: &str, at: &Path) {
    if !at.exists() {
        symlink(target, at).expect("a link");
    }
}

/// Names of the functions that the library under test hooks, as it reports them.
///
/// # Panics
/// If the library does not answer.
pub fn hooked() -> BTreeSet<String> {
    hooks().iter().map(|row| row["symbol"].as_str().expect("a name").to_owned()).collect()
}

/// The rows of the library's table of hooks: `symbol`, `handler`, `switch`, `purpose`.
///
/// # Panics
/// If the library does not answer.
pub fn hooks() -> Vec<serde_json::Value> {
    let script = "import ctypes, sys\n\
        rows = ctypes.CDLL(sys.argv[1]).wmshim_hooks_json\n\
        rows.restype = ctypes.c_char_p\n\
        print(rows().decode())";
    let library = places::shim();
    let outcome = Host::bare("python3").args(["-c", script]).args([library]).run();
    serde_json::from_str(outcome.expect_success()).expect("a JSON array")
}
