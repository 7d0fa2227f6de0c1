//! Hazard (API conformance): a driver function that gets, shares or reports memory has no
//! comparison under the shim: a function of a new CUDA release, or one that was hooked in passing.
//!
//! Every function whose name is of memory, and every one that the shim intercepts, is in `data/entrypoints.tsv`.

use std::collections::BTreeSet;

use conformance::cases::CASES;
use conformance::entrypoints::{Said, Table, without_twin};
use wm_abi::symbol;

/// How names begin that concern memory: where it comes from and ends, what is asked about it, who shares it, what reads it.
const OF_MEMORY: &[&str] = &[
    "cuArray",
    "cuCtxAttach",
    "cuCtxCreate",
    "cuCtxDestroy",
    "cuCtxDetach",
    "cuCtxDisablePeer",
    "cuCtxEnablePeer",
    "cuDestroyExternal",
    "cuDeviceCanAccessPeer",
    "cuDeviceGetDefaultMemPool",
    "cuDeviceGetGraphMem",
    "cuDeviceGetMemPool",
    "cuDeviceGetP2P",
    "cuDeviceGraphMem",
    "cuDevicePrimaryCtx",
    "cuDeviceSetGraphMem",
    "cuDeviceSetMemPool",
    "cuDeviceTotalMem",
    "cuEGL",
    "cuExternalMemory",
    "cuFabric",
    "cuFlushGPUDirect",
    "cuGL",
    "cuGraphAddBatchMemOp",
    "cuGraphAddKernelNode",
    "cuGraphAddMem",
    "cuGraphAddNode",
    "cuGraphBatchMemOp",
    "cuGraphExecBatchMemOp",
    "cuGraphExecKernelNode",
    "cuGraphExecMem",
    "cuGraphExecNode",
    "cuGraphExecUpdate",
    "cuGraphKernelNode",
    "cuGraphMem",
    "cuGraphNodeSetParams",
    "cuGraphics",
    "cuImportExternal",
    "cuIpc",
    "cuLibraryGetGlobal",
    "cuLibraryGetManaged",
    "cuLogicalEndpoint",
    "cuMem",
    "cuMipmapped",
    "cuModuleGetGlobal",
    "cuModuleGetSurfRef",
    "cuModuleGetTexRef",
    "cuMulticast",
    "cuPointer",
    "cuStreamAttachMem",
    "cuStreamBatchMemOp",
    "cuStreamWaitValue",
    "cuStreamWriteValue",
    "cuSurf",
    "cuTensorMap",
    "cuTex",
    "cuThreadExchangeStreamCaptureMode",
    "cuVDPAU",
];

fn driver() -> impl Iterator<Item = &'static str> {
    symbol::NAMES.iter().map(|name| name.to_str().expect("C identifiers are ASCII"))
}

/// The functions that the rows of `hooks!` name: each row begins with a line of names.
fn intercepted() -> BTreeSet<&'static str> {
    let table = include_str!("../../../shim/preload/src/hooks/table.rs");
    let rows = table.lines().map(str::trim).filter(|line| line.starts_with("cu"));
    let names = rows.flat_map(|line| line.split(',').map(str::trim)).filter(|name| !name.is_empty());
    names.map(without_twin).collect()
}

#[test]
fn every_function_of_memory_has_a_row() {
    let table = Table::load();
    let of_memory = |name: &&str| OF_MEMORY.iter().any(|start| name.starts_with(start));
    let missing: Vec<&str> = driver().filter(of_memory).filter(|name| table.of(name).is_none()).collect();
    assert!(missing.is_empty(), "add a case, or a reason, to data/entrypoints.tsv: {missing:?}");
}

#[test]
fn every_intercepted_function_has_a_case() {
    let table = Table::load();
    let rows = intercepted();
    assert!(rows.len() > 50, "shim/preload/src/hooks/table.rs has another form now");
    let without = |name: &&str| !matches!(table.of(name), Some(Said::Cases(_)));
    let missing: Vec<&str> = rows.into_iter().filter(without).collect();
    assert!(missing.is_empty(), "intercepted, and compared by no case of data/entrypoints.tsv: {missing:?}");
}

#[test]
fn the_table_names_what_exists() {
    let (table, functions) = (Table::load(), driver().collect::<BTreeSet<_>>());
    let exists = |name: &&str| match name.strip_suffix('*') {
        Some(start) => functions.iter().any(|function| function.starts_with(start)),
        None => functions.contains(name),
    };
    let unknown: Vec<&str> = table.names().filter(|name| !exists(name)).collect();
    assert!(unknown.is_empty(), "no driver has these: {unknown:?}");
    let cases: BTreeSet<&str> = CASES.iter().map(|row| row.name).collect();
    let named = table.cases().flat_map(|(_, named)| named).map(String::as_str);
    let unknown: BTreeSet<&str> = named.filter(|case| !cases.contains(case)).collect();
    assert!(unknown.is_empty(), "there are no such cases: {unknown:?}");
}
