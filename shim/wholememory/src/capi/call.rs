//! The frame of every C function around its body: it catches panics, turns an error into a code,
//! logs and keeps the reason once, and checks pointers.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{logger, reasons};
use crate::error::{Error, Result};

/// `WHOLEMEMORY_SUCCESS`
pub(super) const SUCCESS: u32 = 0;
/// `WHOLEMEMORY_UNKNOW_ERROR`
const UNKNOWN: u32 = 1;
/// The reason for that code.
const FAULT: &str = "a fault of the library";

/// Calls the body; returns the code of its result.
pub(super) fn answer(call: &str, body: impl FnOnce() -> Result) -> u32 {
    logger::begin();
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(error)) => {
            log::warn!("{call}: {error}");
            reasons::record(&error.to_string());
            error.code()
        }
        Err(_) => {
            log::error!("{call}: {FAULT}");
            reasons::record(FAULT);
            UNKNOWN
        }
    }
}

/// Calls the body; returns its value, or `none` after an error. For functions that return no code.
pub(super) fn value<T>(call: &str, none: T, body: impl FnOnce() -> Result<T>) -> T {
    logger::begin();
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => {
            log::warn!("{call}: {error}");
            reasons::record(&error.to_string());
            none
        }
        Err(_) => {
            log::error!("{call}: {FAULT}");
            reasons::record(FAULT);
            none
        }
    }
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// The pointer is null, or of a place for the value.
pub(super) unsafe fn give<T>(place: *mut T, value: T) -> Result {
    if place.is_null() {
        return Err(Error::Input("the place for a result is null".to_owned()));
    }
    // SAFETY: `place` is not null, so the caller guarantees that it is a place for a `T`.
    unsafe { place.write(value) };
    Ok(())
}

/// Refuses a null place before anything is done that would be lost.
pub(super) fn is_place<T>(place: *mut T) -> Result {
    crate::error::require(!place.is_null(), "the place for a result is null")
}

/// The value at a pointer.
///
/// # Safety
/// The pointer is null, or of a value.
pub(super) unsafe fn read<T: Copy>(place: *const T, what: &str) -> Result<T> {
    if place.is_null() {
        return Err(Error::Input(format!("{what} is null")));
    }
    // SAFETY: `place` is not null, so the caller guarantees that it points to a `T`.
    Ok(unsafe { place.read() })
}
