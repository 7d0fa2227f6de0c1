//! Guards against an import that ARCHITECTURE.md does not allow: policy that reaches for mechanism, a simulator that
//! shares code with what it tests, a shim that grows.
//!
//! Every edge between two packages of the workspace must stand here. To add one, first say in ARCHITECTURE.md why.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Who may import whom.
const ALLOWED: &[(&str, &[&str])] = &[
    ("wm-abi", &[]),
    ("wm-driver", &["wm-abi"]),
    ("wm-kernels", &["wm-abi"]),
    ("wm-memory", &["wm-abi", "wm-driver"]),
    ("wm-multipath", &["wm-abi", "wm-driver"]),
    ("wm-dedup", &["wm-abi", "wm-driver"]),
    ("wm-wholememory", &["wm-abi", "wm-driver", "wm-memory", "wm-kernels", "wm-multipath"]),
    (
        "wmshim",
        &["wm-abi", "wm-driver", "wm-memory", "wm-kernels", "wm-wholememory", "wm-multipath", "wm-dedup"],
    ),
    ("simcuda", &["wm-abi", "wm-kernels"]),
    ("conformance", &["wm-abi", "wm-kernels"]),
    ("hazards", &["wm-abi", "wm-kernels"]),
    ("client", &["wm-kernels"]),
    ("latency", &["wm-abi"]),
    ("demo", &["wm-abi", "wm-kernels"]),
    ("oracle", &["wm-abi", "wm-kernels", "conformance"]),
    ("replay", &["wm-abi"]),
    ("stress", &["wm-abi", "wm-kernels"]),
    ("wmctl", &["wm-abi", "wm-driver", "wm-memory", "wm-multipath"]),
    ("architecture", &[]),
    ("xtask", &[]),
];

/// What tests may import besides: they start the simulator and drive the real implementations.
const ALLOWED_IN_TESTS: &[(&str, &[&str])] = &[
    ("wm-driver", &["simcuda"]),
    ("wm-memory", &["simcuda"]),
    ("wm-multipath", &["hazards"]),
    ("wmshim", &["simcuda"]),
    ("conformance", &["simcuda"]),
    ("hazards", &["simcuda"]),
];

#[test]
fn every_import_inside_the_workspace_is_allowed() {
    let metadata = architecture::metadata();
    let packages: Vec<&Value> = metadata["packages"].as_array().expect("packages").iter().collect();
    let members: BTreeSet<&str> = packages.iter().map(|package| name(package)).collect();
    let mut wrong = Vec::new();
    for package in packages {
        wrong.extend(forbidden_edges(package, &members));
    }
    assert!(wrong.is_empty(), "not allowed by ARCHITECTURE.md:\n{}", wrong.join("\n"));
}

fn forbidden_edges(package: &Value, members: &BTreeSet<&str>) -> Vec<String> {
    let importer = name(package);
    let (normal, tests) = (allowed(ALLOWED, importer), allowed(ALLOWED_IN_TESTS, importer));
    let Some(normal) = normal else {
        return vec![format!("{importer}: a package that the list does not name")];
    };
    let dependencies = package["dependencies"].as_array().expect("dependencies").iter();
    let internal = dependencies.filter(|dependency| members.contains(name(dependency)));
    let wrong = internal.filter(|dependency| {
        let in_tests =
            dependency["kind"] == "dev" && tests.is_some_and(|list| list.contains(&name(dependency)));
        !normal.contains(&name(dependency)) && !in_tests
    });
    wrong
        .map(|dependency| format!("{importer} imports {} ({})", name(dependency), dependency["kind"]))
        .collect()
}

fn allowed(list: &'static [(&str, &[&str])], importer: &str) -> Option<&'static [&'static str]> {
    let map: BTreeMap<_, _> = list.iter().copied().collect();
    map.get(importer).copied()
}

fn name(value: &Value) -> &str {
    value["name"].as_str().expect("a name")
}

/// The rule must be able to fail: a made-up package with a forbidden edge is caught.
#[test]
fn a_forbidden_edge_is_caught() {
    let package = serde_json::json!({
        "name": "wm-memory",
        "dependencies": [
            {"name": "wm-abi", "kind": null},
            {"name": "simcuda", "kind": "dev"},
            {"name": "simcuda", "kind": null},
            {"name": "serde", "kind": null},
        ],
    });
    let wrong = forbidden_edges(&package, &BTreeSet::from(["wm-abi", "simcuda", "wm-memory"]));
    assert_eq!(wrong, ["wm-memory imports simcuda (null)"]);
}
