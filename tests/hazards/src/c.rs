//! Compiles the C sources in `c/`: host programs, plugins, and drivers of a few lines.
//!
//! They are in C because the hazards are the loader's: constructors, `RUNPATH`, `RTLD_DEEPBIND`,
//! link order. A Rust program would add a runtime of its own.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
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

/// Compiles a program or library of C, or of C++ if only that source exists. Many tests run the
/// same ones: what was compiled stays beside the tests, until a source or the compiler's arguments
/// change.
fn compile(source: &str, output: PathBuf, kind: &[&str], flags: &[&str]) -> PathBuf {
    let (folder, scratch) = (places::source("c"), output.parent().expect("a folder"));
    let file = folder.join(source);
    let is_cpp = file.with_extension("cc").exists();
    let (name, file) =
        if is_cpp { ("g++", file.with_extension("cc")) } else { ("gcc", file.with_extension("c")) };
    let mut compiler = Command::new(name);
    compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]).args(kind);
    compiler.arg("-I").arg(&folder).arg(file).args(flags).arg("-ldl");
    clean(&mut compiler);
    if flags.iter().any(|flag| flag.contains(&*scratch.to_string_lossy())) {
        run(compiler.arg("-o").arg(&output));
        return output;
    }
    let compiled = compiled(&compiler, &folder);
    if !compiled.exists() {
        let fresh = compiled.with_extension(std::process::id().to_string());
        run(compiler.arg("-o").arg(&fresh));
        fs::rename(fresh, &compiled).expect("a name in the same folder");
    }
    // A copy of its own: a test may write to it. By another process: a child of this one must not
    // have it open for writing when it runs. What an earlier call left there may still run, and is
    // replaced, not written to.
    run(Command::new("cp").arg("--remove-destination").arg(compiled).arg(&output));
    output
}

/// # Panics
/// With the compiler's message if it fails.
fn run(compiler: &mut Command) {
    let run = compiler.output().expect("gcc and g++ are needed to run these tests; install them");
    assert!(run.status.success(), "{compiler:?}:\n{}", String::from_utf8_lossy(&run.stderr));
}

/// Where the output of a compiler's run stays: its name changes with the arguments, and with the
/// times of the sources and of the libraries that are named.
fn compiled(compiler: &Command, folder: &Path) -> PathBuf {
    let mut hash = DefaultHasher::new();
    let sources = fs::read_dir(folder).expect("the sources").map(|file| file.expect("a file").path());
    let mut files: Vec<PathBuf> = sources.collect();
    files.sort_unstable();
    for argument in compiler.get_args() {
        argument.hash(&mut hash);
        files.push(argument.into());
    }
    let changes = files.iter().map(|file| file.metadata().and_then(|file| file.modified()).ok());
    changes.for_each(|changed| changed.hash(&mut hash));
    let test = std::env::current_exe().expect("this test has a path");
    let folder = test.ancestors().nth(2).expect("target/<profile>").join("c-programs");
    fs::create_dir_all(&folder).expect("a folder");
    folder.join(format!("{:016x}", hash.finish()))
}

/// An option such as `-I` or `-L`, with a path.
pub fn flag(name: &str, path: &Path) -> String {
    format!("{name}{}", path.display())
}

/// Cargo's own library path must not decide what a program is linked against.
fn clean(gcc: &mut Command) {
    gcc.env_remove("LD_LIBRARY_PATH").env_remove("LIBRARY_PATH").env_remove("LD_PRELOAD");
}
