//! Contexts that the program makes, noted once the driver has made them.
//!
//! The column `gate` of `shim/abi/data/driver.tsv` names a function here for each driver function
//! that makes a context. It is called inside the gate.

use std::ffi::c_void;

use wm_abi::{CUcontext, CUresult};

use crate::registry::{ContextKind, REGISTRY};

/// A context like any other.
///
/// # Safety
/// The place is the one of the program's call.
pub(in crate::hooks) unsafe fn made(code: CUresult, place: *mut CUcontext) {
    // SAFETY: by contract.
    unsafe { note(code, place, ContextKind::Plain) };
}

/// A context with wishes: a part of the GPU, or work beside graphics.
///
/// # Safety
/// The place is the one of the program's call.
pub(in crate::hooks) unsafe fn made_with(code: CUresult, place: *mut CUcontext, wishes: *mut c_void) {
    let kind = if wishes.is_null() { ContextKind::Plain } else { ContextKind::Special };
    // SAFETY: by contract.
    unsafe { note(code, place, kind) };
}

/// A context that graphics uses, too.
///
/// # Safety
/// The place is the one of the program's call.
pub(in crate::hooks) unsafe fn made_for_graphics(code: CUresult, place: *mut CUcontext) {
    // SAFETY: by contract.
    unsafe { note(code, place, ContextKind::Special) };
}

/// # Safety
/// If the call succeeded, the driver has written a context at the place.
unsafe fn note(code: CUresult, place: *mut CUcontext, kind: ContextKind) {
    if code == CUresult::SUCCESS {
        // SAFETY: by contract.
        REGISTRY.living_contexts.add(unsafe { *place }, kind);
    }
}
