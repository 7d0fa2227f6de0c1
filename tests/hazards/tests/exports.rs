//! Hazard (symbol interposition): other tools cannot unwind or patch a trampoline, or a version of
//! a hooked function is not hooked.
//!
//! UCX rewrites the first bytes of the driver's memory functions to see allocations; it moves the
//! old instructions elsewhere and refuses code that it cannot move. And a program that uses one
//! version of a function must be served like one that uses another: a block from `cuMemAlloc_v2`
//! may be freed through any of its siblings.

use std::collections::BTreeSet;
use std::fs;

use hazards::{elf, places, shim};
use wm_abi::symbol::NAMES;

/// `sub rsp, 8`; `sub rsp, -8`; and both again: sixteen bytes without effect that work at any
/// address.
const PROLOGUE: [u8; 16] =
    [0x48, 0x83, 0xec, 0x08, 0x48, 0x83, 0xec, 0xf8, 0x48, 0x83, 0xec, 0x08, 0x48, 0x83, 0xec, 0xf8];

#[test]
fn every_function_begins_with_code_that_can_be_moved() {
    let data = fs::read(places::shim()).expect("the library");
    let exports = elf::exports(&data);
    let wrong: Vec<_> = names()
        .filter(|name| exports.get(*name).is_none_or(|at| elf::bytes_at(&data, *at, 16) != PROLOGUE))
        .collect();
    assert!(wrong.is_empty(), "not the prologue that UCX can patch: {wrong:?}");
}

fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|name| name.to_str().expect("names are ASCII"))
}

/// Versions of hooked functions that are forwarded unchanged, each with its reason.
const FORWARDED: &[(&str, &str)] = &[
    ("cuMemAlloc", "32-bit addresses of CUDA 3.1 and older; no 64-bit program has them"),
    ("cuMemAllocPitch", "32-bit addresses"),
    ("cuMemFree", "32-bit addresses"),
    ("cuMemGetInfo", "32-bit sizes"),
    ("cuMemGetAddressRange", "32-bit addresses"),
    ("cuMemHostGetDevicePointer", "32-bit addresses"),
    ("cuMemcpyAtoD", "32-bit addresses"),
    ("cuMemcpyDtoA", "32-bit addresses"),
    ("cuMemsetD8", "32-bit addresses"),
    ("cuMemsetD16", "32-bit addresses"),
    ("cuMemsetD32", "32-bit addresses"),
    ("cuMemsetD2D8", "32-bit addresses"),
    ("cuMemsetD2D16", "32-bit addresses"),
    ("cuMemsetD2D32", "32-bit addresses"),
    ("cuMemcpyHtoD", "32-bit addresses"),
    ("cuMemcpyHtoDAsync", "32-bit addresses"),
    ("cuMemcpyDtoH", "32-bit addresses"),
    ("cuMemcpyDtoHAsync", "32-bit addresses"),
    ("cuMemcpyDtoD", "32-bit addresses"),
    ("cuMemcpyDtoDAsync", "32-bit addresses"),
    ("cuMemcpy2D", "32-bit addresses"),
    ("cuMemcpy2DAsync", "32-bit addresses"),
    ("cuMemcpy2DUnaligned", "32-bit addresses"),
    ("cuMemcpy3D", "32-bit addresses"),
    ("cuMemcpy3DAsync", "32-bit addresses"),
    ("cuArrayCreate", "32-bit sizes"),
    ("cuMemcpyAtoHAsync", "32-bit sizes"),
    ("cuMemcpyHtoAAsync", "32-bit sizes"),
    ("cuArray3DCreate", "32-bit sizes"),
    ("cuGraphAddNode_v3", "of CUDA 13.4, not declared in public headers"),
    ("cuGraphNodeSetParams_v2", "of CUDA 13.4, not declared in public headers"),
];

/// Functions that are hooked only for a per-thread default stream's handle: their twins are seen at
/// their first call, hooked or not.
const WATCHED: &[&str] = &[
    "cuEventRecord",
    "cuEventRecordWithFlags",
    "cuLaunchHostFunc",
    "cuMemPrefetchAsync",
    "cuMemcpyAtoHAsync",
    "cuMemcpyHtoAAsync",
    "cuMemsetD16Async",
    "cuMemsetD2D16Async",
    "cuMemsetD2D32Async",
    "cuMemsetD2D8Async",
    "cuMemsetD32Async",
    "cuMemsetD8Async",
    "cuStreamAddCallback",
    "cuStreamBatchMemOp",
    "cuStreamWaitEvent",
    "cuStreamWaitValue32",
    "cuStreamWaitValue64",
    "cuStreamWriteValue32",
    "cuStreamWriteValue64",
];

/// A function's name without version and per-thread suffix.
fn base(name: &str) -> &str {
    let name = name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name);
    match name.rsplit_once("_v") {
        Some((base, version)) if version.bytes().all(|digit| digit.is_ascii_digit()) => base,
        _ => name,
    }
}

#[test]
fn every_version_and_twin_of_a_hooked_function_is_hooked() {
    let hooked = shim::hooked();
    let bases: BTreeSet<_> = hooked.iter().map(|name| base(name)).collect();
    let is_forwarded = |name: &str| FORWARDED.iter().any(|(known, _)| *known == name);
    let is_seen = |name: &str| name.ends_with("_ptsz") && WATCHED.contains(&base(name));
    let missing: Vec<_> = names()
        .filter(|name| bases.contains(base(name)) && !hooked.contains(*name))
        .filter(|name| !is_forwarded(name) && !is_seen(name))
        .collect();
    assert!(missing.is_empty(), "hook these, or give the reason in FORWARDED: {missing:?}");
}

#[test]
fn every_reason_to_forward_is_still_one() {
    let hooked = shim::hooked();
    for (name, reason) in FORWARDED {
        assert!(names().any(|known| known == *name), "{name} ({reason}) is no function of the driver");
        assert!(!hooked.contains(*name), "{name} ({reason}) is hooked");
    }
}

#[test]
fn every_hook_is_a_function_of_the_driver() {
    let known: BTreeSet<_> = names().map(str::to_owned).collect();
    let strange: Vec<_> = shim::hooked().difference(&known).cloned().collect();
    assert!(strange.is_empty(), "{strange:?}");
}
