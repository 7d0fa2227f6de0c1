//! `cuInit`: once it has succeeded, the process is a CUDA program, and its statistics can be asked
//! for.

use std::ffi::c_uint;

use wm_abi::{CUresult, symbol};

use crate::process::driver;
use crate::report;

/// `cuInit`.
pub(in crate::hooks) unsafe fn init(flags: c_uint) -> CUresult {
    // SAFETY: a function without pointers.
    let result = unsafe { driver().get::<symbol::cuInit>()(flags) };
    if result == CUresult::SUCCESS {
        report::open_endpoint();
    }
    result
}
