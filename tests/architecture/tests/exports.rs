//! Guards against a library that exports too little or too much.
//!
//! A driver function that is missing is null for every program: look-ups never reach the real driver behind the shim.
//! A name too many can capture a call that was meant for another library.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSymbol};

/// libwmshim.so as `cargo build` leaves it: two folders above this test's own executable.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let path = test.ancestors().nth(2).expect("target/<profile>").join("libwmshim.so");
    assert!(path.exists(), "{} is not there: run `cargo build -p wmshim` first", path.display());
    path
}

fn exports() -> BTreeSet<String> {
    let data = fs::read(library()).expect("the library can be read");
    let file = object::File::parse(&*data).expect("an ELF file");
    let defined = file.dynamic_symbols().filter(|symbol| symbol.is_definition() && symbol.is_global());
    defined.map(|symbol| symbol.name().expect("a name").to_owned()).collect()
}

/// The names of `shim/abi/data/driver.tsv`.
fn table() -> BTreeSet<String> {
    let text = architecture::text(Path::new("shim/abi/data/driver.tsv")).expect("the table");
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| row.split('\t').next().expect("a name").to_owned()).collect()
}

/// What the library exports besides: the two loader functions it must see, and its own interface.
fn is_ours(name: &str) -> bool {
    matches!(name, "dlopen" | "dlmopen") || name.starts_with("wmshim_")
}

#[test]
fn every_driver_function_is_exported() {
    let missing: Vec<_> = table().difference(&exports()).cloned().collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");
}

#[test]
fn nothing_else_is_exported() {
    let extra: Vec<_> = exports().difference(&table()).filter(|name| !is_ours(name)).cloned().collect();
    assert!(extra.is_empty(), "exported, and not in the table: {extra:?}");
}
