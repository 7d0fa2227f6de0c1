//! Hazard (symbol interposition): the library exports too little, or a name that a host program
//! resolves to it by accident.
//!
//! A missing driver function is null for every program: look-ups never reach the real driver behind
//! the shim. An additional name can capture a call that was meant for another library.

use std::collections::BTreeSet;
use std::path::Path;

use architecture::exports;

/// The names of `shim/abi/data/driver.tsv`.
fn table() -> BTreeSet<String> {
    let text = architecture::text(Path::new("shim/abi/data/driver.tsv")).expect("the table");
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| row.split('\t').next().expect("a name").to_owned()).collect()
}

/// By which PyTorch's allocator reports its blocks (`hooks/torch_blocks.rs`).
const OF_TORCH: &str = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";

/// The library's other exports: the two loader functions that it must see, and its own interface.
fn is_ours(name: &str) -> bool {
    matches!(name, "dlopen" | "dlmopen" | OF_TORCH) || name.starts_with("wmshim_")
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
