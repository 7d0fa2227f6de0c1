//! The C API: numbers and pointers in, a code out.
//!
//! Each function checks what it is given, does what its page of the API says by the safe layers,
//! and turns their errors into codes. A reason is logged once, here. No panic goes through to C.
//!
//! A rank makes a table and gathers three rows (the whole program: `docs/wholememory.md`):
//!
//! ```c
//! wholememory_comm_t comm;
//! wholememory_create_communicator(&comm, id, rank, size);       // collective
//! wholememory_tensor_t table;                                   // shape: [1000, 16], float
//! wholememory_create_tensor(&table, &shape, comm, WHOLEMEMORY_MT_CHUNKED, WHOLEMEMORY_ML_DEVICE);
//! wholememory_communicator_barrier(comm);                       // the other ranks' rows are there
//! wholememory_gather(table, indices, output, NULL, stream);     // not collective
//! wholememory_destroy_tensor(table);
//! ```

pub mod communicators;
pub mod descriptions;
pub mod embeddings;
pub mod files;
pub mod graphs;
mod logger;
pub mod memories;
pub mod operations;
pub mod properties;
pub mod random;
pub mod reasons;
mod registry;
pub mod tensors;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result};

/// `WHOLEMEMORY_SUCCESS`
pub(crate) const SUCCESS: u32 = 0;
/// `WHOLEMEMORY_UNKNOW_ERROR`
const UNKNOWN: u32 = 1;
/// What is said of it.
const FAULT: &str = "a fault of the library";

/// Declares functions that C calls, one after the other, and a list of their names.
macro_rules! exports {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $answer:ty)? $body:block)*) => {
        $($(#[$doc])*
        ///
        /// # Safety
        /// Each pointer is null, or of what its name and type say. A handle may be any number.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $answer)? $body)*

        /// The functions of this file.
        pub(super) const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}
use exports;

/// All functions that C calls, by file.
pub const EXPORTS: &[&[&str]] = &[
    communicators::NAMES,
    descriptions::NAMES,
    embeddings::NAMES,
    files::NAMES,
    graphs::NAMES,
    memories::NAMES,
    operations::NAMES,
    properties::NAMES,
    random::NAMES,
    reasons::NAMES,
    tensors::NAMES,
];

/// The code of what was done.
fn answer(call: &str, body: impl FnOnce() -> Result) -> u32 {
    logger::begin();
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(error)) => {
            log::warn!("{call}: {error}");
            reasons::keep(&error.to_string());
            error.code()
        }
        Err(_) => {
            log::error!("{call}: {FAULT}");
            reasons::keep(FAULT);
            UNKNOWN
        }
    }
}

/// A value, or what stands for it where there is none; for functions that have no code.
fn value<T>(call: &str, none: T, body: impl FnOnce() -> Result<T>) -> T {
    logger::begin();
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => {
            log::warn!("{call}: {error}");
            reasons::keep(&error.to_string());
            none
        }
        Err(_) => {
            log::error!("{call}: {FAULT}");
            reasons::keep(FAULT);
            none
        }
    }
}

/// Writes a result where the caller wants it.
///
/// # Safety
/// The pointer is null, or of a place for the value.
unsafe fn give<T>(place: *mut T, value: T) -> Result {
    if place.is_null() {
        return Err(Error::Input("the place for a result is null".to_owned()));
    }
    // SAFETY: the caller's word.
    unsafe { place.write(value) };
    Ok(())
}

/// Refuses a null place before anything is done that would be lost.
fn is_place<T>(place: *mut T) -> Result {
    crate::error::require(!place.is_null(), "the place for a result is null")
}

/// What is at a pointer.
///
/// # Safety
/// The pointer is null, or of a value.
unsafe fn read<T: Copy>(place: *const T, what: &str) -> Result<T> {
    if place.is_null() {
        return Err(Error::Input(format!("{what} is null")));
    }
    // SAFETY: the caller's word.
    Ok(unsafe { place.read() })
}
