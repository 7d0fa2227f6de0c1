//! Hazard (source drift): a crate imports another one without a reason in ARCHITECTURE.md: policy
//! that imports mechanism, or a simulator that shares code with the library under test.

use architecture::edges::{self, Edges};
use serde_json::Value;

const PAGE: &str = "ARCHITECTURE.md";

#[test]
fn the_page_names_every_import_inside_the_workspace_and_no_other() {
    let metadata = architecture::metadata();
    let lines = edges::block(PAGE, "crates");
    let wrong = edges::differences(&edges::parse(&lines), &imports(&metadata["packages"]));
    assert!(wrong.is_empty(), "{PAGE}, block `crates`:\n{}", wrong.join("\n"));
    assert_eq!(edges::upward(&lines), Vec::<String>::new(), "each line imports only what stands above it");
}

/// The edges between packages; those of tests and of build scripts under names of their own.
fn imports(packages: &Value) -> Edges {
    let packages = packages.as_array().expect("packages");
    let mut edges: Edges = packages.iter().map(|package| (name(package), [].into())).collect();
    let members: Vec<String> = edges.keys().cloned().collect();
    for package in packages {
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let importer = match dependency["kind"].as_str() {
                Some("dev") => format!("{} (tests)", name(package)),
                Some(kind) => format!("{} ({kind})", name(package)),
                None => name(package),
            };
            let internal = members.contains(&name(dependency));
            edges.entry(importer).or_default().extend(internal.then(|| name(dependency)));
        }
    }
    edges.retain(|importer, imported| members.contains(importer) || !imported.is_empty());
    edges
}

fn name(value: &Value) -> String {
    value["name"].as_str().expect("a name").to_owned()
}

/// The rule must be able to fail: each kind of edge of a made-up package is found.
#[test]
fn imports_of_tests_and_of_build_scripts_stand_apart() {
    let packages = serde_json::json!([
        {"name": "wm-abi", "dependencies": []},
        {"name": "simcuda", "dependencies": []},
        {"name": "wm-memory", "dependencies": [
            {"name": "wm-abi", "kind": null},
            {"name": "simcuda", "kind": "dev"},
            {"name": "wm-abi", "kind": "build"},
            {"name": "serde", "kind": null},
        ]},
    ]);
    let expected = [
        "simcuda",
        "wm-abi",
        "wm-memory -> wm-abi",
        "wm-memory (tests) -> simcuda",
        "wm-memory (build) -> wm-abi",
    ];
    let expected = edges::parse(&expected.map(str::to_owned));
    assert_eq!(imports(&packages), expected);
}
