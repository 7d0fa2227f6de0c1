//! `cuGetProcAddress`: a function by its plain name, the program's CUDA version, and whether null
//! means the calling thread's stream.
//!
//! The rules are data: each entry of `symbol::LOOKUPS` names the first version from which on a name
//! means an export. An entry newer than this driver does not exist for it, although the export
//! does.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use wm_abi::{
    CU_GET_PROC_ADDRESS_LEGACY_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
    CU_GET_PROC_ADDRESS_SUCCESS, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, CUresult, CUuuid, symbol,
};

use crate::device::DRIVER_VERSION;
use crate::entry::{Call, Outcome, early_exports, put, put_optional, require};

/// One meaning of a name.
#[derive(Debug)]
struct Row {
    version: c_int,
    per_thread: bool,
    /// Position of the export in `symbol::NAMES`.
    index: usize,
}

macro_rules! addresses {
    ($($name:ident,)*) => {
        unsafe extern "C" {
            $(fn $name();)*
        }
        /// The address of every export, in the order of `symbol::NAMES`.
        static ADDRESSES: [unsafe extern "C" fn(); symbol::COUNT] = [$($name,)*];
    };
}

#[allow(clashing_extern_declarations, reason = "only the addresses count here")]
mod table {
    use wm_abi::symbol;
    include!(concat!(env!("OUT_DIR"), "/addresses.rs"));

    pub(super) fn address(index: usize) -> *mut std::ffi::c_void {
        ADDRESSES[index] as *mut std::ffi::c_void
    }
}

/// Every name with its meanings, oldest first.
fn meanings() -> &'static HashMap<&'static str, Vec<Row>> {
    static MEANINGS: OnceLock<HashMap<&'static str, Vec<Row>>> = OnceLock::new();
    MEANINGS.get_or_init(|| {
        let mut names: HashMap<_, Vec<Row>> = HashMap::new();
        for (index, lookup) in symbol::LOOKUPS.iter().enumerate() {
            if let Some(lookup) = lookup.filter(|lookup| lookup.version <= DRIVER_VERSION) {
                let row = Row { version: lookup.version, per_thread: lookup.is_per_thread, index };
                names.entry(lookup.name).or_default().push(row);
            }
        }
        names.values_mut().for_each(|rows| rows.sort_by_key(|row| row.version));
        names
    })
}

/// The newest meaning of a name in a version; for per-thread streams the meaning made for them, if
/// there is one.
fn find(name: &str, version: c_int, per_thread: bool) -> Result<*mut c_void, c_uint> {
    let rows = meanings().get(name).ok_or(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)?;
    let newest =
        |wanted: bool| rows.iter().rev().find(|row| row.per_thread == wanted && row.version <= version);
    let row = if per_thread { newest(true).or_else(|| newest(false)) } else { newest(false) };
    row.map(|row| table::address(row.index)).ok_or(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT)
}

/// # Safety
/// `name` is null or a C string; `place` and `status` are null or valid for a write.
unsafe fn answer(
    call: &Call,
    name: *const c_char,
    place: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_uint,
) -> Outcome {
    require(!name.is_null() && !place.is_null(), CUresult::INVALID_VALUE)?;
    let per_thread = match u32::try_from(flags) {
        Ok(0) => call.default_stream() == wm_abi::CUstream::PER_THREAD,
        Ok(CU_GET_PROC_ADDRESS_LEGACY_STREAM) => false,
        Ok(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) => true,
        _ => return Err(CUresult::INVALID_VALUE),
    };
    // SAFETY: by contract.
    let found = find(unsafe { CStr::from_ptr(name) }.to_str().unwrap_or_default(), version, per_thread);
    // SAFETY: by contract.
    unsafe {
        put_optional(status, found.err().unwrap_or(CU_GET_PROC_ADDRESS_SUCCESS));
        put(place, found.unwrap_or(std::ptr::null_mut()))?;
    }
    // If the caller passes a place for the status, the status is written there instead of an error.
    require(found.is_ok() || !status.is_null(), CUresult::NOT_FOUND)
}

early_exports! {
    fn cuGetProcAddress(symbol: *const c_char, pfn: *mut *mut c_void, cudaVersion: c_int, flags: u64) |call| {
        answer(call, symbol, pfn, cudaVersion, flags, std::ptr::null_mut())
    }

    fn cuGetProcAddress_v2 + cuGetProcAddress_v2_ptsz(symbol: *const c_char, pfn: *mut *mut c_void, cudaVersion: c_int, flags: u64, symbolStatus: *mut c_uint) |call| {
        answer(call, symbol, pfn, cudaVersion, flags, symbolStatus)
    }

    /// There are no private tables, and there never will be: NVIDIA's runtime verifies its driver
    /// by them.
    fn cuGetExportTable(ppExportTable: *mut *const c_void, pExportTableId: *const CUuuid) |call| {
        require(!pExportTableId.is_null(), CUresult::INVALID_VALUE)?;
        put(ppExportTable, std::ptr::null())?;
        Err(CUresult::NOT_FOUND)
    }
}

#[cfg(test)]
mod tests {
    //! Hazard: a program gets a function of another version, or of the other meaning of the null
    //! stream.
    use super::*;

    fn export(name: &str, version: c_int, per_thread: bool) -> Result<&'static str, c_uint> {
        let address = find(name, version, per_thread)?;
        let index = (0..symbol::COUNT).find(|i| table::address(*i) == address).unwrap();
        Ok(symbol::NAMES[index].to_str().unwrap())
    }

    #[test]
    fn version_and_flags_choose_the_export() {
        assert_eq!(export("cuMemAlloc", 2000, false), Ok("cuMemAlloc"));
        assert_eq!(export("cuMemAlloc", 12000, false), Ok("cuMemAlloc_v2"));
        assert_eq!(export("cuMemAlloc", 12000, true), Ok("cuMemAlloc_v2"));
        assert_eq!(export("cuMemcpyHtoDAsync", 12000, true), Ok("cuMemcpyHtoDAsync_v2_ptsz"));
        assert_eq!(export("cuMemcpyHtoDAsync", 12000, false), Ok("cuMemcpyHtoDAsync_v2"));
        assert_eq!(export("cuCtxGetDevice", 12090, false), Ok("cuCtxGetDevice"));
        assert_eq!(export("cuCtxGetDevice", 13000, false), Ok("cuCtxGetDevice_v2"));
    }

    #[test]
    fn unknown_names_and_early_versions_differ() {
        assert_eq!(export("cuNoSuchThing", 13000, false), Err(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
        assert_eq!(export("", 13000, false), Err(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
        assert_eq!(export("cuMemAllocAsync", 11010, false), Err(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT));
    }

    #[test]
    fn a_name_newer_than_the_driver_is_unknown() {
        assert_eq!(export("cuFabricCpyBatchAsync", 13050, false), Err(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    }
}
