//! Hazard (source drift): the C header declares a function that the library does not export, or
//! omits one that it exports.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const HEADER: &str = "shim/preload/include/wmshim.h";

/// Names that the header declares: the word before each `(void)`.
fn declared() -> BTreeSet<String> {
    let text = architecture::text(Path::new(HEADER)).expect("the header");
    let declarations = text.lines().filter(|line| line.starts_with("extern WMSHIM_WEAK"));
    declarations
        .filter_map(|line| Some(line.split_once('(')?.0.rsplit([' ', '*']).next()?.to_owned()))
        .collect()
}

#[test]
fn the_header_declares_what_is_exported() {
    let exported: BTreeSet<_> =
        architecture::exports().into_iter().filter(|name| name.starts_with("wmshim_")).collect();
    assert_eq!(declared(), exported, "left: {HEADER}, right: the library");
}

#[test]
fn the_header_compiles_as_c_and_cpp() {
    for language in ["c", "c++"] {
        let mut compiler = Command::new("cc");
        compiler.args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-x", language, HEADER]);
        let output = compiler.current_dir(architecture::root()).output().expect("cc is needed: install gcc");
        assert!(output.status.success(), "{language}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
