//! Names and descriptions of the driver's errors.

use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use wm_abi::CUresult;

use crate::entry::{Outcome, early_exports, put, require};

/// Name and description of every code, by number.
fn texts() -> &'static HashMap<u32, (CString, CString)> {
    static TEXTS: OnceLock<HashMap<u32, (CString, CString)>> = OnceLock::new();
    TEXTS.get_or_init(|| (0..1000).filter_map(|code| Some((code, text(CUresult(code).name()?)?))).collect())
}

fn text(name: &str) -> Option<(CString, CString)> {
    let words = name.trim_start_matches("CUDA_ERROR_").replace('_', " ").to_lowercase();
    let description = if name == "CUDA_SUCCESS" { "no error".to_owned() } else { words };
    Some((CString::new(name).ok()?, CString::new(description).ok()?))
}

/// # Safety
/// `place` is null or valid for a write.
unsafe fn tell(
    code: CUresult,
    place: *mut *const c_char,
    choose: impl Fn(&'static (CString, CString)) -> &'static CString,
) -> Outcome {
    let found = texts().get(&code.0).map(choose);
    // SAFETY: by contract.
    unsafe { put(place, found.map_or(std::ptr::null(), |text| text.as_ptr()))? };
    require(found.is_some(), CUresult::INVALID_VALUE)
}

early_exports! {
    fn cuGetErrorName(error: CUresult, pStr: *mut *const c_char) |call| {
        tell(error, pStr, |texts| &texts.0)
    }

    fn cuGetErrorString(error: CUresult, pStr: *mut *const c_char) |call| {
        tell(error, pStr, |texts| &texts.1)
    }
}
