//! Hazard (source drift): an import runs from a lower layer to a higher one, or files import each
//! other.

use std::collections::BTreeSet;

use architecture::{edges, modules};

const PAGE: &str = "ARCHITECTURE.md";

/// The page with the layers of the smaller crates.
const MORE: &str = "docs/dev/layers.md";

/// Folders whose layers stand on a page: crates, and folders inside a crate's `src`.
const LAYERED: [(&str, &str); 14] = [
    ("shim/memory", PAGE),
    ("multipath", PAGE),
    ("shim/preload", PAGE),
    ("shim/preload/src/hooks", PAGE),
    ("shim/schema", MORE),
    ("dedup", MORE),
    ("dedup/code", MORE),
    ("shim/driver", MORE),
    ("shim/wholememory", MORE),
    ("tools/wmctl", MORE),
    ("tools/bench", MORE),
    ("tools/conformance", MORE),
    ("tools/oracle", MORE),
    ("tools/simnccl", MORE),
];

/// A crate whose cycle stands on a page, without layers.
const KNOTTED: [(&str, &str); 1] = [("tools/simcuda", MORE)];

/// The files of a crate, or of one folder of it, with their imports of each other.
fn files(folder: &str) -> edges::Edges {
    match folder.split_once("/src/") {
        Some((package, inside)) => modules::within(inside, &modules::files(&format!("{package}/src"))),
        None => modules::files(&format!("{folder}/src")),
    }
}

#[test]
fn the_page_names_every_import_between_layers_and_no_other() {
    for (folder, page) in LAYERED {
        let lines = edges::block(page, &format!("layers of {folder}"));
        let wrong = edges::differences(&edges::parse(&lines), &modules::layers(&files(folder)));
        assert!(wrong.is_empty(), "{page}, layers of {folder}:\n{}", wrong.join("\n"));
        assert_eq!(edges::upward(&lines), Vec::<String>::new(), "{folder}: a layer imports one below it");
    }
}

/// A cycle is a line of its block: the files, then `:` and the reason.
#[test]
fn no_files_import_each_other_but_those_that_the_page_names() {
    for (folder, page) in LAYERED.into_iter().chain(KNOTTED) {
        let listed = edges::block(page, &format!("cycles of {folder}"));
        let names = |line: &String| {
            line.split(':').next().unwrap_or_default().split(',').map(|f| f.trim().to_owned()).collect()
        };
        let listed: BTreeSet<Vec<String>> = listed.iter().map(names).collect();
        let found = edges::cycles(&files(folder));
        assert_eq!(listed, found, "{page}, cycles of {folder}, against those in the sources");
    }
}

/// The sources must be found: an empty list has no cycle.
#[test]
fn the_files_of_a_layered_crate_are_seen() {
    for (folder, _) in LAYERED.into_iter().chain(KNOTTED) {
        assert!(files(folder).len() > 10, "{folder} has more files");
    }
}
