//! Hazard (source drift): an import runs from a lower layer to a higher one, or files import each
//! other.

use std::collections::BTreeSet;

use architecture::{edges, modules};

const PAGE: &str = "ARCHITECTURE.md";

/// Crates whose layers stand on the page.
const LAYERED: [&str; 3] = ["shim/memory", "multipath", "shim/preload"];

#[test]
fn the_page_names_every_import_between_layers_and_no_other() {
    for folder in LAYERED {
        let lines = edges::block(PAGE, &format!("layers of {folder}"));
        let sources = modules::layers(&modules::files(&format!("{folder}/src")));
        let wrong = edges::differences(&edges::parse(&lines), &sources);
        assert!(wrong.is_empty(), "{PAGE}, layers of {folder}:\n{}", wrong.join("\n"));
        assert_eq!(
            edges::upward(&lines),
            Vec::<String>::new(),
            "each layer imports only what stands above it"
        );
    }
}

/// A cycle is a line of its block: the files, then `:` and the reason.
#[test]
fn no_files_import_each_other_but_those_that_the_page_names() {
    for folder in LAYERED {
        let listed = edges::block(PAGE, &format!("cycles of {folder}"));
        let files = |line: &String| {
            line.split(':').next().unwrap_or_default().split(',').map(|f| f.trim().to_owned()).collect()
        };
        let listed: BTreeSet<Vec<String>> = listed.iter().map(files).collect();
        let found = edges::cycles(&modules::files(&format!("{folder}/src")));
        assert_eq!(listed, found, "{PAGE}, cycles of {folder}, against those in the sources");
    }
}

/// The sources must be seen: a list of nothing has no cycle.
#[test]
fn the_files_of_a_layered_crate_are_seen() {
    for folder in LAYERED {
        assert!(modules::files(&format!("{folder}/src")).len() > 10, "{folder} has more files");
    }
}
