//! Calls whose ranges are checked first: copies, memsets, and nodes of graphs that copy or set.
//!
//! Each has an entry here. The entry refuses a call that runs past a block
//! ([`crate::hooks::copy::bounds`]). Otherwise it calls the function that would be in the slot
//! without it: the gate, the entry of the function's row, or the real function. So no other code of
//! the library sees a range that leaves its block.
//!
//! The column `bounds` of `shim/abi/data/driver.tsv` names the check of each function and the
//! parameters that it gets.

use wm_abi::CUstream;
use wm_abi::symbol::{self, COUNT, Symbol};

use crate::hooks::call::stream::is_per_thread;

/// A function whose ranges are checked.
struct Bounded {
    index: usize,
    /// The function of `bounds` that checks them.
    check: &'static str,
    entry: *const (),
    /// Sets the function that the entry calls.
    lead_to: fn(*const ()),
}

/// Declares them from the table's cells: the parameters, the stream that the call works in, and the
/// call of `bounds` that checks the ranges.
macro_rules! bounded {
    ($($name:ident $parameters:tt, $stream:ident => $check:ident $ranges:tt;)*) => {
        #[allow(non_upper_case_globals, reason = "named after the driver's functions")]
        mod next {
            use wm_abi::symbol;

            use crate::process::CachedFn;

            $(pub(super) static $name: CachedFn<symbol::$name> = CachedFn::new();)*
        }

        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's functions")]
        mod entry {
            use std::ffi::{c_uint, c_void};

            use wm_abi::symbol::{self, Symbol};
            use wm_abi::*;

            use crate::hooks::bounded::{default_of, next};
            use crate::hooks::copy::bounds;
            use crate::multipath;

            $(bounded_entry!($name $parameters, $stream => $check $ranges);)*
        }

        const BOUNDED: &[Bounded] = &[
            $(Bounded {
                index: <symbol::$name as Symbol>::INDEX,
                check: concat!("bounds::", stringify!($check)),
                entry: entry::$name as *const (),
                lead_to: |next| next::$name.replace(next),
            },)*
        ];
    };
}

macro_rules! bounded_entry {
    ($name:ident($($argument:ident: $type:ty),*), $stream:ident => $check:ident($($range:ident),*)) => {
        pub(super) unsafe extern "C" fn $name($($argument: $type),*) -> CUresult {
            // SAFETY: the program's arguments, for the function that it called.
            #[allow(unused_unsafe, reason = "some take no pointers")]
            if unsafe { bounds::$check($($range),*) } {
                return CUresult::INVALID_VALUE;
            }
            let _call = enter!($name, $stream);
            // SAFETY: the same.
            unsafe { next::$name.get()($($argument),*) }
        }
        const _: <symbol::$name as Symbol>::Function = $name;
    };
}

/// Work that goes into a stream comes behind the copies there that are under way, and before those
/// that begin during the call. A call that makes or changes a node puts no work into one.
macro_rules! enter {
    ($name:ident, none) => {
        ()
    };
    ($name:ident, default) => {
        multipath::enter(const { default_of(stringify!($name)) })
    };
    ($name:ident, $stream:ident) => {
        multipath::enter(if $stream.is_null() { const { default_of(stringify!($name)) } } else { $stream })
    };
}

/// The stream that a null handle stands for in a function.
const fn default_of(name: &str) -> CUstream {
    if is_per_thread(name) { CUstream::PER_THREAD } else { CUstream::LEGACY }
}

/// The address for a function's slot, which would lead to `next` without a check.
pub(super) fn around(index: usize, next: *const ()) -> *const () {
    BOUNDED.get(usize::from(BY_INDEX[index])).map_or(next, |bounded| {
        (bounded.lead_to)(next);
        bounded.entry
    })
}

/// Every checked function: its index, and the function of `bounds`.
pub(super) fn all() -> impl Iterator<Item = (usize, &'static str)> {
    BOUNDED.iter().map(|bounded| (bounded.index, bounded.check))
}

/// Position of each function in [`BOUNDED`]; beyond its end for a function that is not there.
/// Computed by the compiler, as the positions of rows are.
const BY_INDEX: &[u8; COUNT] = &{
    let mut positions = [u8::MAX; COUNT];
    let mut position = 0;
    while position < BOUNDED.len() {
        positions[BOUNDED[position].index] = position as u8;
        position += 1;
    }
    positions
};

include!("generated/bounded.rs");

#[cfg(test)]
mod tests {
    //! Hazard (out-of-bounds access): a copy or memset of a new driver that runs past its block,
    //! because its row in the table names no check.
    use super::*;

    /// They have no end in device memory that begins in a block: both ends are the host's or
    /// arrays, or device addresses have 32 bits.
    fn has_no_such_end(name: &str) -> bool {
        let without = ["HtoA", "AtoH", "AtoA"].iter().any(|form| name[8..].starts_with(form));
        let family = name.trim_end_matches("_ptds").trim_end_matches("_ptsz");
        let has_wide_form = symbol::NAMES.iter().any(|other| other.to_str() == Ok(&format!("{family}_v2")));
        let is_first_form = !family.ends_with("_v2") && has_wide_form && !family.contains("Batch");
        without || is_first_form
    }

    #[test]
    fn every_copy_and_memset_is_checked_or_has_no_end_in_a_block() {
        let names = symbol::NAMES.iter().map(|name| name.to_str().expect("a name"));
        let concerned = names.filter(|name| name.starts_with("cuMemcpy") || name.starts_with("cuMemset"));
        let missing: Vec<_> = concerned
            .filter(|name| !BOUNDED.iter().any(|bounded| symbol::NAMES[bounded.index].to_str() == Ok(name)))
            .filter(|name| !has_no_such_end(name))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn each_function_has_its_own_position() {
        for (position, bounded) in BOUNDED.iter().enumerate() {
            assert_eq!(usize::from(BY_INDEX[bounded.index]), position);
        }
        assert!(BOUNDED.len() < usize::from(u8::MAX));
    }
}
