//! The places of the files under test: beside the running test, as `cargo build` leaves them.

use std::fs;
use std::path::{Path, PathBuf};

/// `libwmshim.so`.
pub fn shim() -> PathBuf {
    built("libwmshim.so")
}

/// `libsimcuda.so`, the simulated driver.
pub fn simulated_driver() -> PathBuf {
    built("libsimcuda.so")
}

/// `wmctl`, the command-line tool.
pub fn wmctl() -> PathBuf {
    built("wmctl")
}

/// `wmshimd`, the broker of memory that processes share.
pub fn broker() -> PathBuf {
    built("wmshimd")
}

/// A file of this crate, by its path below the crate's folder.
pub fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A file of the workspace, by its path below the workspace's folder.
pub fn workspace(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A product of the build: two folders above this test's own executable
/// (`target/<profile>/deps/<test>`).
///
/// # Panics
/// If it was not built: a test that lacks it has failed.
pub fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let file = test.ancestors().nth(2).expect("target/<profile>").join(name);
    assert!(file.exists(), "{} is not there; build them first: make test does", file.display());
    file
}

/// This folder, empty. It stays when the test ends.
///
/// # Panics
/// Where it cannot be made.
pub fn emptied(folder: PathBuf) -> PathBuf {
    let _absent_the_first_time = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}
