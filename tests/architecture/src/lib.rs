//! The common functions of the tests of the source tree: its place, its files, and cargo's
//! metadata.
//!
//! The rules themselves are in `tests/`, one file a rule. They hold properties that no compiler
//! checks and that a reader of ARCHITECTURE.md relies on.

#![forbid(unsafe_code)]

pub mod edges;
pub mod modules;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSymbol};

/// The workspace's root folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// The output of `cargo metadata` for the workspace's own packages.
pub fn metadata() -> serde_json::Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--no-deps", "--offline"]).current_dir(root());
    let output = command.output().expect("cargo can be started");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

/// Every file that git tracks or would track, as a path relative to the root.
///
/// Without git (a source archive) the tree is walked instead, without build products and fetched
/// files.
pub fn files() -> Vec<PathBuf> {
    tracked()
        .unwrap_or_else(|| walk(&root()))
        .into_iter()
        .filter(|path| root().join(path).is_file())
        .collect()
}

fn tracked() -> Option<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root());
    let output = git.output().ok().filter(|output| output.status.success())?;
    let names = String::from_utf8(output.stdout).ok()?;
    Some(names.split_terminator('\0').map(PathBuf::from).collect())
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of the source tree");
    entries.flat_map(|entry| below(&entry.expect("an entry").path())).collect()
}

fn below(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with('.') || matches!(&*name, "target" | "dist" | "__pycache__") {
        return Vec::new();
    }
    if path.is_dir() {
        walk(path)
    } else {
        vec![path.strip_prefix(root()).expect("below the root").to_owned()]
    }
}

/// The text of a file of the tree, if it is text.
pub fn text(path: &Path) -> Option<String> {
    fs::read_to_string(root().join(path)).ok()
}

/// Did a program write this file?
pub fn is_generated(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "generated")
}

/// Every Rust file of the tree.
pub fn rust_files() -> impl Iterator<Item = PathBuf> {
    files().into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
}

/// libwmshim.so as `cargo build` leaves it: two folders above the test's own executable.
fn library() -> Vec<u8> {
    let test = std::env::current_exe().expect("this test has a path");
    let path = test.ancestors().nth(2).expect("target/<profile>").join("libwmshim.so");
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; run `cargo build -p wmshim`", path.display()))
}

/// The names that libwmshim.so exports.
pub fn exports() -> BTreeSet<String> {
    let data = library();
    let file = object::File::parse(&*data).expect("an ELF file");
    let defined = file.dynamic_symbols().filter(|symbol| symbol.is_definition() && symbol.is_global());
    defined.map(|symbol| symbol.name().expect("a name").to_owned()).collect()
}
