//! Drivers to put behind the shim.
//!
//! If the hazard is the loader's or the trampolines', a driver of a few lines shows more than a
//! whole one: it can lack functions, or print its arguments. If calls must have an effect, the
//! simulated driver is used.

use std::fmt::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use wm_abi::symbol::NAMES;

use crate::{Scratch, c, places};

/// The full name under which NVIDIA installs its library; `libcuda.so.1` links to it.
pub const FULL_NAME: &str = "libcuda.so.580.0";

/// The soname of every driver.
const SONAME: &str = "-Wl,-soname,libcuda.so.1";

/// A driver of three functions, laid out as NVIDIA's installer does. Returns the folder.
///
/// # Panics
/// If it cannot be made.
pub fn small(scratch: &Scratch) -> PathBuf {
    let folder = scratch.folder("driver");
    c::library("small_driver", folder.join(FULL_NAME), &[SONAME]);
    links(&folder);
    folder
}

/// The simulated driver, laid out as NVIDIA's installer does. Returns the folder.
///
/// # Panics
/// If it cannot be made.
pub fn simulated(scratch: &Scratch) -> PathBuf {
    let folder = scratch.folder("driver");
    let (from, to) = (places::simulated_driver(), folder.join(FULL_NAME));
    // Without debug information, like NVIDIA's: the shim reads a driver of less than 32 MiB
    // through.
    let stripped = Command::new("strip").args(["--strip-debug", "-o"]).args([&to, &from]).status();
    assert!(
        stripped.is_ok_and(|status| status.success()),
        "strip (of binutils) makes a copy of {}",
        from.display()
    );
    links(&folder);
    folder
}

/// A driver with every function, each of which checks its arguments.
pub fn echo(scratch: &Scratch) -> PathBuf {
    symbols_header(scratch);
    let include = c::flag("-I", scratch.path());
    c::library("echo_driver", scratch.path().join("echo_driver.so"), &[SONAME, &include, "-O0"])
}

/// A driver in which `cuInit` succeeds and every other function fails.
pub fn failing(scratch: &Scratch) -> PathBuf {
    symbols_header(scratch);
    let folder = scratch.folder("driver");
    let include = c::flag("-I", scratch.path());
    c::library("failing_driver", folder.join(FULL_NAME), &[SONAME, &include]);
    links(&folder);
    folder
}

/// Writes `symbols.h`: `X(index, name)` for every exported driver function, for the C sources to
/// expand.
pub fn symbols_header(scratch: &Scratch) -> PathBuf {
    let mut text = String::new();
    for (index, name) in NAMES.iter().enumerate() {
        let name = name.to_str().expect("names are ASCII");
        writeln!(text, "X({index}, {name})").expect("a string can be written to");
    }
    scratch.file("symbols.h", text)
}

fn links(folder: &Path) {
    symlink(FULL_NAME, folder.join("libcuda.so.1")).expect("a link");
    symlink("libcuda.so.1", folder.join("libcuda.so")).expect("a link");
}
