//! `cuGetProcAddress`: for every look-up of the CUDA runtimes, the result is the function that the
//! driver exports.

use std::ffi::{CString, c_int};
use std::ptr::null_mut;

use wm_abi::*;

use crate::case::{Case, Verdict};
use crate::cu;
use crate::driver::{ProcAddressRow, rows};
use crate::fixture::init;

const RUNTIME_12: &str = include_str!("../../data/cudart12_lookups.csv");
const RUNTIME_13: &str = include_str!("../../data/cudart13_lookups.csv");

/// One recorded look-up: name, version, flags.
fn lookups(table: &str) -> impl Iterator<Item = (&str, c_int, u64)> {
    table.lines().filter_map(|line| {
        let (name, rest) = line.split_once(',')?;
        let (version, flags) = rest.split_once(',')?;
        Some((name, version.parse().ok()?, flags.parse().ok()?))
    })
}

/// The row that the driver's documented rule selects: of the rows with this name and these flags,
/// the newest that is not newer than `version`; per-thread look-ups fall back to the plain function
/// if there is no other.
fn selected(name: &str, version: c_int, flags: u64) -> Option<&'static ProcAddressRow> {
    let named = |row: &&ProcAddressRow| row.base.to_bytes() == name.as_bytes() && row.version <= version;
    let newest = |flags: u64| {
        rows().iter().filter(named).filter(|row| row.flags == flags).max_by_key(|row| row.version)
    };
    match flags {
        2 => newest(2).or_else(|| newest(0)),
        _ => newest(0),
    }
}

fn walk(case: &mut Case, table: &str) -> Verdict {
    let d = case.driver;
    init(d)?;
    let (mut found, mut missing) = (0_u32, 0_u32);
    for (name, version, flags) in lookups(table) {
        let asked = CString::new(name).expect("the table holds no zero byte");
        let (code, address, status) = d.ask(&asked, version, flags);
        case.observe_machine(format!("{name} {version} {flags}"), format!("{code} status {status}"));
        let consistent = (code == CUresult::SUCCESS && status == 0) != address.is_null();
        case.expect(
            consistent,
            format!("{name} {version} {flags}: {code}, status {status}, address {address:p}"),
        );
        let Some(row) = selected(name, version, flags) else { continue };
        let exported = d.exported(row.exported);
        if exported.is_null() {
            missing += 1;
            continue;
        }
        found += 1;
        let message = format!("{name} {version} {flags} does not lead to {}", row.exported.to_string_lossy());
        case.expect(address == exported, message);
    }
    case.observe_machine("look-ups that lead to exported functions", found);
    case.observe_machine("functions that this driver does not export", missing);
    case.expect(found > 300, format!("only {found} look-ups lead to exported functions"));
    Ok(())
}

pub(super) fn runtime_12(case: &mut Case) -> Verdict {
    walk(case, RUNTIME_12)
}

pub(super) fn runtime_13(case: &mut Case) -> Verdict {
    walk(case, RUNTIME_13)
}

/// Null pointers are left out here as in the error texts: NVIDIA's driver dereferences them.
pub(super) fn arguments(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let mut ask = |label: &str, name: &std::ffi::CStr, version, flags| {
        let (code, address, status) = d.ask(name, version, flags);
        case.observe(label, format!("{} status {status}, {}", crate::case::short(code), address.is_null()));
        (status, address.is_null())
    };
    let unknown = ask("unknown name", c"cuNoSuchFunction", 12000, 0);
    let old = ask("version too old", c"cuMemAllocAsync", 9000, 0);
    ask("version 0", c"cuMemAlloc", 0, 0);
    ask("flags 99", c"cuMemAlloc", 12000, 99);
    ask("empty name", c"", 0, 0);
    ask("a name with its suffix", c"cuMemAlloc_v2", 12000, 0);
    case.expect(unknown == (1, true), "an unknown name does not give status SYMBOL_NOT_FOUND and null");
    case.expect(old == (2, true), "an old version does not give status VERSION_NOT_SUFFICIENT and null");
    let mut address = null_mut();
    let code = cu!(d, cuGetProcAddress_v2(c"cuMemAlloc".as_ptr(), &mut address, 12000, 0, null_mut()));
    case.expect_ok("without status", code);
    Ok(())
}

pub(super) fn first_version(case: &mut Case) -> Verdict {
    let d = case.driver;
    init(d)?;
    let mut address = null_mut();
    let code = cu!(d, cuGetProcAddress(c"cuMemAlloc".as_ptr(), &mut address, 11030, 0));
    case.expect_ok("cuMemAlloc 11030", code);
    case.expect_that("it is cuMemAlloc_v2", address == d.exported(c"cuMemAlloc_v2"));
    let code = cu!(d, cuGetProcAddress(c"cuMemAlloc".as_ptr(), &mut address, 2000, 0));
    case.expect_ok("cuMemAlloc 2000", code);
    case.expect_that("it is cuMemAlloc", address == d.exported(c"cuMemAlloc"));
    let code = cu!(d, cuGetProcAddress(c"cuNoSuchFunction".as_ptr(), &mut address, 12000, 0));
    case.code("unknown name", code);
    case.expect(code != CUresult::SUCCESS || address.is_null(), "an unknown name was found");
    Ok(())
}
