//! Compiles the C sources in `c/`: host programs, plugins, and drivers of a few lines.
//!
//! They are in C because the hazards are the loader's: constructors, `RUNPATH`, `RTLD_DEEPBIND`,
//! link order. A Rust program would add a runtime of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Scratch, places};

/// Compiles `c/<source>.c` to a program in the scratch folder. `flags` come last, so they may name
/// libraries.
///
/// # Panics
/// With the compiler's message if it fails.
pub fn program(scratch: &Scratch, source: &str, flags: &[&str]) -> PathBuf {
    compile(source, scratch.path().join(source), &["-pthread"], flags)
}

/// The same, linked with `-lcuda` as with the toolkit's stub: any library with the driver's soname
/// and names is enough.
///
/// # Panics
/// With the compiler's message if it fails.
pub fn cuda_program(scratch: &Scratch, source: &str) -> PathBuf {
    program(scratch, source, &[places::shim().to_str().expect("a readable path")])
}

/// Compiles `c/<source>.c` to the shared library `file`.
///
/// # Panics
/// With the compiler's message if it fails.
pub fn library(source: &str, file: PathBuf, flags: &[&str]) -> PathBuf {
    compile(source, file, &["-shared", "-fPIC"], flags)
}

/// Compiles a program or library of C, or of C++ if only that source exists.
fn compile(source: &str, output: PathBuf, kind: &[&str], flags: &[&str]) -> PathBuf {
    let file = places::source("c").join(source);
    let is_cpp = file.with_extension("cc").exists();
    let (name, file) =
        if is_cpp { ("g++", file.with_extension("cc")) } else { ("gcc", file.with_extension("c")) };
    let mut compiler = Command::new(name);
    compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]).args(kind);
    compiler.arg("-I").arg(places::source("c")).arg("-o").arg(&output).arg(file).args(flags).arg("-ldl");
    clean(&mut compiler);
    let run = compiler.output().expect("gcc and g++ are needed to run these tests; install them");
    assert!(run.status.success(), "{name} {source}:\n{}", String::from_utf8_lossy(&run.stderr));
    output
}

/// An option such as `-I` or `-L`, with a path.
pub fn flag(name: &str, path: &Path) -> String {
    format!("{name}{}", path.display())
}

/// Cargo's own library path must not decide what a program is linked against.
fn clean(gcc: &mut Command) {
    gcc.env_remove("LD_LIBRARY_PATH").env_remove("LIBRARY_PATH").env_remove("LD_PRELOAD");
}
