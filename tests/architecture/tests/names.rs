//! Hazard (source drift): two types have one name, and a reader of one misreads the other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Folders of the library's crates and of the commands around it. The programs beside them, such as
/// the simulated driver, have names of their own for the same things.
const PRODUCT: [&str; 6] = ["dedup", "kernels", "multipath", "shim", "tools/wmctl", "tools/xtask"];

/// Names that may have several definitions, with the reason.
const EXCEPTIONS: [(&str, &str); 2] = [
    ("Error", "what the functions of a module fail with, as in the standard library"),
    ("Result", "what the functions of a module return, as in the standard library"),
];

#[test]
fn a_type_name_has_one_meaning() {
    let names = definitions();
    assert!(names.len() > 400, "{} names are seen", names.len());
    let shared: Vec<_> = names.iter().filter(|(name, files)| is_shared(name, files)).collect();
    assert!(
        shared.is_empty(),
        "types of one name in several files. The type for which it is the standard term keeps it. Name the others after \
         what they are, in terms of CUDA, of allocators or of Rust: `StreamKey` and `HandleKey`, not `Key` twice. If it \
         is the standard term for all of them, add it to EXCEPTIONS with the reason. {shared:#?}"
    );
}

fn is_shared(name: &str, files: &BTreeSet<PathBuf>) -> bool {
    if EXCEPTIONS.iter().any(|(exception, _)| *exception == name) {
        return false;
    }
    files.len() > 1
}

/// Files that define a type of each name.
fn definitions() -> BTreeMap<String, BTreeSet<PathBuf>> {
    let mut names: BTreeMap<String, BTreeSet<PathBuf>> = BTreeMap::new();
    for path in architecture::rust_files().filter(|path| is_product(path)) {
        let text = architecture::text(&path).unwrap_or_default();
        for name in without_tests(&text).lines().filter_map(defined) {
            names.entry(name.to_owned()).or_default().insert(path.clone());
        }
    }
    names
}

fn is_product(path: &Path) -> bool {
    let is_test = path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
    PRODUCT.iter().any(|folder| path.starts_with(folder)) && !is_test && !architecture::is_generated(path)
}

/// A file up to its own module of tests, which is the last thing in it.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

/// The type that a line defines. An associated type is no name of its own: the trait defines its
/// meaning.
fn defined(line: &str) -> Option<&str> {
    let code = line.trim_start();
    let code = match code.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
        Some(rest) => rest.trim_start(),
        None => code,
    };
    let (keyword, rest) = code.strip_prefix("unsafe ").unwrap_or(code).split_once(' ')?;
    let is_type = match keyword {
        "struct" | "enum" | "union" | "trait" => true,
        "type" => !line.starts_with(' '),
        _ => false,
    };
    let name = rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()?;
    (is_type && name.starts_with(char::is_uppercase)).then_some(name)
}

/// The rule must be able to fail.
#[test]
fn a_name_with_two_meanings_is_seen() {
    assert_eq!(defined("pub(crate) struct Key(u32);"), Some("Key"));
    assert_eq!(defined("        pub(crate) struct Settings {"), Some("Settings"));
    assert_eq!(defined("pub type Dlopen = fn();"), Some("Dlopen"));
    assert_eq!(defined("unsafe trait Bound<T> {"), Some("Bound"));
    assert_eq!(defined("    type Error = CUresult;"), None);
    assert_eq!(defined("// struct of a thing"), None);
    assert_eq!(without_tests("struct A;\n#[cfg(test)]\nmod tests {\nstruct B;\n}"), "struct A;\n");
    let files = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
    assert!(is_shared("Key", &files(&["shim/a.rs", "shim/b.rs"])));
    assert!(!is_shared("Key", &files(&["shim/a.rs"])));
}
