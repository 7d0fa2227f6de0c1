//! `cuGetProcAddress`: the driver looks the function up, and we translate its answer.
//!
//! The driver's rules say which version of a function a name stands for, and they change from
//! release to release. So the real function is asked, and the address that it answers is replaced
//! by our export of the same function. An address that is none of the driver's exports is passed on
//! as it is.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use wm_abi::symbol::{self, COUNT, NAMES};
use wm_abi::{CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, CUresult};

use super::boundary;
use super::exports::{self, TABLES};
use crate::gate::GATE;
use crate::process::{callers, driver};
use crate::subsystems::PROCESS;

/// `cuGetProcAddress`.
pub(in crate::hooks) unsafe fn get_proc_address(
    name: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> CUresult {
    note_caller();
    // SAFETY: the program's arguments.
    let result = unsafe { driver().get::<symbol::cuGetProcAddress>()(name, pfn, version, flags) };
    // SAFETY: as above.
    unsafe { translate(result, name, pfn, flags) }
}

/// `cuGetProcAddress_v2`.
pub(in crate::hooks) unsafe fn get_proc_address_v2(
    name: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_uint,
) -> CUresult {
    note_caller();
    // SAFETY: the program's arguments.
    let result = unsafe { driver().get::<symbol::cuGetProcAddress_v2>()(name, pfn, version, flags, status) };
    // SAFETY: as above.
    unsafe { translate(result, name, pfn, flags) }
}

/// The decoder is about to be used: memory stays from then on, and what was evicted comes back
/// first.
fn note_caller() {
    if GATE.is_on() && callers::is_first_of_decoder() {
        boundary::observe(|| PROCESS.moves.come_home());
        callers::note_decoder();
    }
}

/// # Safety
/// After a successful look-up with these arguments.
unsafe fn translate(result: CUresult, name: *const c_char, pfn: *mut *mut c_void, flags: u64) -> CUresult {
    if result != CUresult::SUCCESS || pfn.is_null() || name.is_null() {
        return result;
    }
    // SAFETY: the driver has just read the name and written the pointer.
    let (name, found) = unsafe { (CStr::from_ptr(name), *pfn) };
    let per_thread = flags & u64::from(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    if let Some((index, exports)) =
        export_at(by_address(), found as usize, name, per_thread).zip(exports::get())
    {
        // SAFETY: as above.
        unsafe { *pfn = exports.addresses[index] as *mut c_void };
    }
    result
}

/// The function at an address in the driver. If several names share the address, the one that was
/// asked for.
fn export_at(table: &[(usize, usize)], address: usize, name: &CStr, per_thread: bool) -> Option<usize> {
    let first = table.partition_point(|(at, _)| *at < address);
    let aliases = table[first..].iter().take_while(|(at, _)| *at == address).map(|(_, index)| *index);
    aliases.min_by_key(|index| !fits(NAMES[*index], name, per_thread))
}

fn fits(export: &CStr, name: &CStr, per_thread: bool) -> bool {
    let export = export.to_bytes();
    let twin = export.ends_with(b"_ptsz") || export.ends_with(b"_ptds");
    export.starts_with(name.to_bytes()) && twin == per_thread
}

/// The driver's exports, sorted by address, without the functions that it lacks.
fn by_address() -> &'static [(usize, usize)] {
    TABLES.by_address.get_or_init(|| {
        let real = (0..COUNT).filter_map(|index| Some((driver().address(index)? as usize, index)));
        let mut table: Vec<_> = real.collect();
        table.sort_unstable();
        table
    })
}

#[cfg(test)]
mod tests {
    //! Hazard (symbol interposition): of several functions at one address, a look-up names another
    //! than the one that was asked for.
    use wm_abi::symbol::Symbol;

    use super::*;

    #[test]
    fn aliases_are_told_apart_by_the_name_that_was_asked_for() {
        let [plain, twin] = [symbol::cuMemsetD8Async::INDEX, symbol::cuMemsetD8Async_ptsz::INDEX];
        let other = symbol::cuMemAlloc_v2::INDEX;
        let table = [(16, other), (32, other), (32, plain), (32, twin), (48, plain)];
        let found = |address, per_thread| export_at(&table, address, c"cuMemsetD8Async", per_thread);
        assert_eq!((found(32, false), found(32, true)), (Some(plain), Some(twin)));
        assert_eq!((found(16, false), found(24, false)), (Some(other), None), "a sole name, and none");
    }
}
