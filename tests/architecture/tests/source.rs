//! Hazard (source drift): `unsafe` outside the crates that may have it, a file without an opening,
//! a file of more than one idea, or text that names the author's machine.

use std::path::Path;

/// Crates that must do without `unsafe`: policy and tools. A driver call needs it, so the crates
/// that make them (wm-driver, wmshim, simcuda and the test programs) are not here.
const SAFE: [&str; 4] = [
    "dedup/src/lib.rs",
    "shim/memory/src/lib.rs",
    "tools/xtask/src/main.rs",
    "tests/architecture/src/lib.rs",
];

/// Folders of crates that call the driver, are the driver, or open libraries. No other file has
/// `unsafe`.
const UNSAFE: [&str; 40] = [
    "dedup/src/bin/wmshimd/system.rs",
    "kernels",
    "multipath/src/driver/table.rs",
    "multipath/tests/preloaded",
    "multipath/tests/simulator.rs",
    "shim/abi",
    "shim/driver",
    "shim/preload",
    "shim/sockets/src/descriptor.rs",
    "shim/sockets/src/file.rs",
    "shim/trust/src/environment.rs",
    "shim/trust/src/peer.rs",
    "shim/wholememory/src/capi",
    "shim/wholememory/src/environment.rs",
    "shim/wholememory/src/exchange/forked.rs",
    "shim/wholememory/src/exchange/interfaces.rs",
    "shim/wholememory/src/exchange/tcp.rs",
    "shim/wholememory/src/files/place.rs",
    "shim/wholememory/src/kernels.rs",
    "shim/wholememory/src/nccl",
    "shim/wholememory/src/operations/upload.rs",
    "shim/wholememory/src/spanning/flags.rs",
    "shim/wholememory/src/spanning/opening.rs",
    "shim/wholememory/src/storage/mapping.rs",
    "shim/wholememory/src/storage/landing.rs",
    "shim/wholememory/src/storage/tables.rs",
    "shim/wholememory/src/stream.rs",
    "tests/client",
    "tests/hazards",
    "tests/latency",
    "tests/replay",
    "tests/wholememory",
    "tools/bench",
    "tools/conformance",
    "tools/demo",
    "tools/oracle",
    "tools/simcuda",
    "tools/simnccl",
    "tools/stress",
    "tools/wmctl",
];

/// Files that others `include!`: an inner doc comment is not possible there, a plain comment is.
const INCLUDED: [&str; 1] = ["shim/preload/src/hooks/table.rs"];

/// Longest file, in lines.
const LONGEST: usize = 500;

/// Crates that live in a host program, and the one file of them that reads the environment: in a
/// program with more rights than its caller, the caller chooses the variables.
const LIBRARY: [&str; 4] = ["dedup/src", "kernels/src", "multipath/src", "shim"];
const ENVIRONMENT: &str = "shim/trust/src/environment.rs";

/// Functions that read or write the environment.
const READS: [&str; 6] =
    ["env::var", "env::set_var", "env::remove_var", "env::temp_dir", "env::home_dir", "libc::getenv"];

/// Paths of an author's machine, in two halves so that this file does not contain them.
const FOREIGN: [(&str, &str); 4] = [("/wo", "rk/"), ("../sha", "red"), ("/tmp/br", "ief"), ("/ro", "ot/")];

#[test]
fn crates_of_policy_forbid_unsafe() {
    for path in SAFE {
        let text = architecture::text(Path::new(path)).expect(path);
        assert!(text.contains("#![forbid(unsafe_code)]"), "{path} must say #![forbid(unsafe_code)]");
    }
}

#[test]
fn unsafe_is_where_it_may_be() {
    let mut wrong = architecture::rust_files().collect::<Vec<_>>();
    wrong.retain(|path| !UNSAFE.iter().any(|folder| path.starts_with(folder)) && has_unsafe(path));
    assert!(wrong.is_empty(), "unsafe is not expected here, see ARCHITECTURE.md: {wrong:?}");
}

#[test]
fn the_library_reads_the_environment_in_one_place() {
    let files =
        architecture::rust_files().filter(|path| LIBRARY.iter().any(|folder| path.starts_with(folder)));
    let wrong: Vec<_> = files.filter(|path| reads_environment(path)).collect();
    assert_eq!(wrong, [Path::new(ENVIRONMENT)], "read variables by wm_trust::environment");
}

/// Outside of tests, which run with their caller's rights.
fn reads_environment(path: &Path) -> bool {
    let is_test = path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests");
    let text = architecture::text(path).unwrap_or_default();
    let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(&text);
    !is_test && READS.iter().any(|word| product.contains(word))
}

/// In two halves, so that this file does not contain them.
fn has_unsafe(path: &Path) -> bool {
    let text = architecture::text(path).unwrap_or_default();
    [" {", " fn", " impl", " extern"].iter().any(|next| text.contains(&format!("un{}{next}", "safe")))
}

#[test]
fn every_rust_file_opens_with_an_essay() {
    let wrong: Vec<_> = architecture::rust_files().filter(|path| !opens_with_essay(path)).collect();
    assert!(wrong.is_empty(), "say in a //! comment at the top what these are for: {wrong:?}");
}

fn opens_with_essay(path: &Path) -> bool {
    let text = architecture::text(path).unwrap_or_default();
    let opening = if INCLUDED.iter().any(|included| path == Path::new(included)) { "// " } else { "//! " };
    architecture::is_generated(path) || text.starts_with(opening)
}

#[test]
fn no_file_is_longer_than_its_idea() {
    let long: Vec<_> = architecture::rust_files()
        .filter(|path| !architecture::is_generated(path))
        .map(|path| (architecture::text(&path).unwrap_or_default().lines().count(), path))
        .filter(|(lines, _)| *lines > LONGEST)
        .collect();
    assert!(long.is_empty(), "more than {LONGEST} lines, split them: {long:?}");
}

/// A path of the machine begins with the word; `hooks/work/` is a folder of this repository.
fn names_path(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| !text[..at].ends_with(|c: char| c.is_alphanumeric()))
}

#[test]
fn nothing_names_a_path_of_the_author() {
    let mut wrong = Vec::new();
    for path in architecture::files() {
        let text = architecture::text(&path).unwrap_or_default();
        wrong.extend(
            FOREIGN
                .iter()
                .map(|(a, b)| format!("{a}{b}"))
                .filter(|word| names_path(&text, word))
                .map(|word| format!("{}: {word}", path.display())),
        );
    }
    assert!(wrong.is_empty(), "copy into the repository what is needed from there:\n{}", wrong.join("\n"));
}

/// The list of files must not be empty.
#[test]
fn the_tree_is_seen() {
    assert!(architecture::rust_files().any(|path| path.ends_with("shim/abi/src/lib.rs")));
}
