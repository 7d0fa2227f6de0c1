//! The boundary: the one place where a C function of the driver is defined.
//!
//! A row of [`exports!`] gives a function's name, the name of its per-thread-stream twin, its
//! arguments and its body. The macro adds the common parts of every driver function: the check that
//! the driver is initialised (not for rows of [`early_exports!`]), the injected failure
//! ([`crate::fail`]), a body that may use `?`, and a stop for panics at the boundary. Each export
//! is checked against the driver's own signature at compile time.
//!
//! Invariants: no body is entered in a process that forked after `cuInit`, nor after the driver's
//! exit handler, nor from a host callback of a stream.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wm_abi::{CUresult, CUstream};

use crate::cancel::Uncancelled;
use crate::checkpoint::Begun;
use crate::ending::Inside;
use crate::exclusion::Turn;
use crate::{callback, fail, state};

/// The result of a driver function, in a form that works with `?`.
pub(crate) type Outcome<T = ()> = Result<T, CUresult>;

/// The function of a call, and the meaning of its null stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// Position of the function in `wm_abi::symbol::NAMES`.
    index: usize,
    /// Does "no stream" mean the calling thread's default stream (`_ptsz`, `_ptds`)?
    per_thread: bool,
}

impl Call {
    /// A call of the function at `index`.
    pub(crate) const fn new(index: usize, per_thread: bool) -> Self {
        Self { index, per_thread }
    }

    /// The stream that null means.
    pub(crate) fn default_stream(self) -> CUstream {
        if self.per_thread { CUstream::PER_THREAD } else { CUstream::LEGACY }
    }
}

/// Runs the body of a function that needs an initialised driver.
pub(crate) fn enter(call: Call, body: impl FnOnce(&Call) -> Outcome) -> CUresult {
    enter_early(call, |call| state::ready().and_then(|()| callback::permit()).and_then(|()| body(call)))
}

/// Runs the body of a function that may be called before `cuInit`.
pub(crate) fn enter_early(call: Call, body: impl FnOnce(&Call) -> Outcome) -> CUresult {
    let _whole = Uncancelled::begin();
    let _begun = Begun::begin(call.index);
    let _inside = Inside::enter(call.index);
    let _turn = Turn::begin(call.index);
    let guarded = AssertUnwindSafe(|| fail::strike(call.index).and_then(|()| body(&call)));
    catch_unwind(guarded).unwrap_or(Err(CUresult::UNKNOWN)).into()
}

/// Writes a result to the caller's place.
///
/// # Safety
/// `place` is null or valid for a write of `T`.
///
/// # Errors
/// `INVALID_VALUE` if it is null.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Outcome {
    if place.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    // SAFETY: not null, and valid by contract. The caller's structures may lack alignment, as in C.
    unsafe { place.write_unaligned(value) };
    Ok(())
}

/// Writes a result that the caller may decline with null.
///
/// # Safety
/// `place` is null or valid for a write of `T`.
pub(crate) unsafe fn put_optional<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, and valid by contract.
        unsafe { place.write_unaligned(value) };
    }
}

/// Reads an argument that is passed by pointer.
///
/// # Safety
/// `place` is null or valid for a read of `T`.
///
/// # Errors
/// `INVALID_VALUE` if it is null.
pub(crate) unsafe fn get<T: Copy>(place: *const T) -> Outcome<T> {
    if place.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    // SAFETY: not null, and valid by contract.
    Ok(unsafe { place.read_unaligned() })
}

/// Reads an array that is passed by pointer and length.
///
/// # Safety
/// `place` is null or valid for reads of `count` values.
///
/// # Errors
/// `INVALID_VALUE` if it is null and not empty.
pub(crate) unsafe fn get_all<T: Copy>(place: *const T, count: usize) -> Outcome<Vec<T>> {
    // SAFETY: each element is within the array that the caller guarantees.
    (0..count).map(|i| unsafe { get(place.wrapping_add(i)) }).collect()
}

/// An error unless a condition holds.
pub(crate) fn require(holds: bool, error: CUresult) -> Outcome {
    if holds { Ok(()) } else { Err(error) }
}

/// Rows of functions that need `cuInit` first. See the module's text.
macro_rules! exports {
    ($($(#[$meta:meta])* fn $name:ident $(+ $twin:ident)? ($($argument:ident: $type:ty),* $(,)?) |$call:ident| $body:block)*) => {$(
        $crate::entry::define! { enter [$(#[$meta])*] fn $name $(+ $twin)? ($($argument: $type),*) |$call| $body }
    )*};
}

/// Rows of functions that work before `cuInit`. See the module's text.
macro_rules! early_exports {
    ($($(#[$meta:meta])* fn $name:ident $(+ $twin:ident)? ($($argument:ident: $type:ty),* $(,)?) |$call:ident| $body:block)*) => {$(
        $crate::entry::define! { enter_early [$(#[$meta])*] fn $name $(+ $twin)? ($($argument: $type),*) |$call| $body }
    )*};
}

/// One row. The body is in a module of the function's name, where both exports of the row use it.
macro_rules! define {
    ($enter:ident $meta:tt fn $name:ident + $twin:ident $arguments:tt |$call:ident| $body:block) => {
        $crate::entry::define! { $enter $meta fn $name $arguments |$call| $body }
        $crate::entry::define! { @export $enter $meta true $twin $name $arguments }
    };
    ($enter:ident $meta:tt fn $name:ident $arguments:tt |$call:ident| $body:block) => {
        $crate::entry::define! { @body $name $arguments |$call| $body }
        $crate::entry::define! { @export $enter $meta false $name $name $arguments }
    };
    (@body $name:ident ($($argument:ident: $type:ty),*) |$call:ident| $body:block) => {
        #[allow(non_snake_case, unused_imports, unused_variables, unused_unsafe, clippy::too_many_arguments)]
        mod $name {
            use super::*;

            pub(super) unsafe fn body($call: &$crate::entry::Call, $($argument: $type),*) -> $crate::entry::Outcome {
                // SAFETY: the program guarantees the pointers that it passes, as it does to
                // NVIDIA's driver.
                unsafe { $body }
            }
        }
    };
    (@export $enter:ident [$($meta:tt)*] $per_thread:literal $export:ident $body:ident ($($argument:ident: $type:ty),*)) => {
        $($meta)*
        ///
        /// # Safety
        /// As for the driver's function of this name.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub unsafe extern "C" fn $export($($argument: $type),*) -> wm_abi::CUresult {
            const CALL: $crate::entry::Call =
                $crate::entry::Call::new(<wm_abi::symbol::$export as wm_abi::symbol::Symbol>::INDEX, $per_thread);
            // SAFETY: forwarded from this function's contract.
            $crate::entry::$enter(CALL, |call| unsafe { $body::body(call, $($argument),*) })
        }

        const _: <wm_abi::symbol::$export as wm_abi::symbol::Symbol>::Function = $export;
    };
}

pub(crate) use {define, early_exports, exports};
