//! The calls whose ranges are looked at before anything else is done for them: copies, memsets, and nodes of graphs that are either.
//!
//! Each has an entry here that asks [`crate::hooks::copy::bounds`] and then calls what would be in the slot otherwise: the gate, the entry of the function's row, or the
//! real function. A call that is refused gets there by no way, so nothing of the library has to judge a range that is none.
//!
//! Each name is whole. A later version of a function may have other arguments: it is not looked at until it has a row here.

use wm_abi::CUstream;
use wm_abi::symbol::{self, COUNT, Symbol};

use crate::hooks::call::stream::is_per_thread;

/// A function that is looked at.
struct Bounded {
    index: usize,
    /// The function of `bounds` that looks.
    look: &'static str,
    entry: *const (),
    /// Sets what the entry calls.
    lead_to: fn(*const ()),
}

// SAFETY: functions' addresses.
unsafe impl Sync for Bounded {}

/// Declares them by the function of `bounds` that looks.
macro_rules! bounded {
    ($($look:ident => $($name:ident),+;)*) => {
        #[allow(non_upper_case_globals, reason = "named after the driver's functions")]
        mod next {
            use wm_abi::symbol;

            use crate::process::CachedFn;

            $($(pub(super) static $name: CachedFn<symbol::$name> = CachedFn::new();)+)*
        }

        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's functions")]
        mod entry {
            use std::ffi::{c_uint, c_void};

            use wm_abi::symbol::{self, Symbol};
            use wm_abi::*;

            use crate::hooks::bounded::{default_of, is_work, next};
            use crate::hooks::copy::bounds;
            use crate::multipath;

            $($(wm_abi::with_parameters!($name => bounded_entry!($name, $look));)+)*
        }

        static BOUNDED: &[Bounded] = &[
            $($(Bounded {
                index: <symbol::$name as Symbol>::INDEX,
                look: concat!("bounds::", stringify!($look)),
                entry: entry::$name as *const (),
                lead_to: |next| next::$name.replace(next),
            },)+)*
        ];
    };
}

macro_rules! bounded_entry {
    ($parameters:tt $name:ident, $look:ident) => { bounded_entry!($parameters $parameters $name, $look); };
    (($($argument:ident: $type:ty),*) $parameters:tt $name:ident, $look:ident) => {
        pub(super) unsafe extern "C" fn $name($($argument: $type),*) -> CUresult {
            // SAFETY: the program's arguments, for the function that it called.
            #[allow(unused_unsafe, reason = "some take no pointers")]
            if unsafe { bounds::$look($($argument),*) } {
                return CUresult::INVALID_VALUE;
            }
            if const { is_work(stringify!($name)) } {
                let stream: CUstream = stream_of!($parameters);
                multipath::follow(if stream.is_null() { const { default_of(stringify!($name)) } } else { stream });
            }
            // SAFETY: the same.
            unsafe { next::$name.get()($($argument),*) }
        }
        const _: <symbol::$name as Symbol>::Function = $name;
    };
}

/// The stream that a call names, or null.
macro_rules! stream_of {
    (($stream:ident: CUstream $($rest:tt)*)) => { $stream };
    (($other:ident: $type:ty $(, $($rest:tt)*)?)) => { stream_of!(($($($rest)*)?)) };
    (()) => { CUstream::NULL };
}

/// Does a function put work into a stream? Those that make or change nodes do not.
const fn is_work(name: &str) -> bool {
    matches!(name.as_bytes(), [b'c', b'u', b'M', b'e', b'm', ..])
}

/// What the null stream stands for in a function.
const fn default_of(name: &str) -> CUstream {
    if is_per_thread(name) { CUstream::PER_THREAD } else { CUstream::LEGACY }
}

/// What a function's slot is to lead to, where it would lead to `next` if nothing looked.
pub(super) fn around(index: usize, next: *const ()) -> *const () {
    BOUNDED.get(usize::from(BY_INDEX[index])).map_or(next, |bounded| {
        (bounded.lead_to)(next);
        bounded.entry
    })
}

/// Every function, by its index, and what looks.
pub(super) fn all() -> impl Iterator<Item = (usize, &'static str)> {
    BOUNDED.iter().map(|bounded| (bounded.index, bounded.look))
}

/// Position of each function in [`BOUNDED`]; beyond its end for those that are not there. Computed by the compiler, as that of rows is.
static BY_INDEX: [u8; COUNT] = {
    let mut positions = [u8::MAX; COUNT];
    let mut position = 0;
    while position < BOUNDED.len() {
        positions[BOUNDED[position].index] = position as u8;
        position += 1;
    }
    positions
};

bounded! {
    load => cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds;
    load_async => cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz;
    store => cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds;
    store_async => cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz;
    copy => cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, cuMemcpy, cuMemcpy_ptds;
    copy_async => cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyAsync, cuMemcpyAsync_ptsz;
    copy_with_attributes => cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync_ptsz;
    peer => cuMemcpyPeer, cuMemcpyPeer_ptds;
    peer_async => cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz;
    to_array => cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds;
    from_array => cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds;
    shaped =>
        cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, cuMemcpy3D_v2,
        cuMemcpy3D_v2_ptds, cuMemcpy3DPeer, cuMemcpy3DPeer_ptds;
    shaped_async =>
        cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz, cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz,
        cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz;
    batch => cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz;
    batch_v2 => cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz;
    volumes => cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_ptsz;
    volumes_v2 => cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync_v2_ptsz;
    volume_with_attributes => cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync_ptsz;
    set =>
        cuMemsetD8_v2, cuMemsetD8_v2_ptds, cuMemsetD16_v2, cuMemsetD16_v2_ptds, cuMemsetD32_v2, cuMemsetD32_v2_ptds;
    set_async =>
        cuMemsetD8Async, cuMemsetD8Async_ptsz, cuMemsetD16Async, cuMemsetD16Async_ptsz, cuMemsetD32Async,
        cuMemsetD32Async_ptsz;
    set_rows =>
        cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds, cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds, cuMemsetD2D32_v2,
        cuMemsetD2D32_v2_ptds;
    set_rows_async =>
        cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz, cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz, cuMemsetD2D32Async,
        cuMemsetD2D32Async_ptsz;
    added_copy => cuGraphAddMemcpyNode;
    changed_copy => cuGraphMemcpyNodeSetParams;
    changed_ready_copy => cuGraphExecMemcpyNodeSetParams;
    added_set => cuGraphAddMemsetNode;
    changed_set => cuGraphMemsetNodeSetParams;
    changed_ready_set => cuGraphExecMemsetNodeSetParams;
    added => cuGraphAddNode;
    added_v2 => cuGraphAddNode_v2;
    changed => cuGraphNodeSetParams;
    changed_ready => cuGraphExecNodeSetParams;
}

#[cfg(test)]
mod tests {
    //! Hazard (out-of-bounds access): a copy or memset of a new driver that runs past its block, because no row here names it.
    use super::*;

    /// They have no end in device memory that begins in a block: both ends are the host's or arrays, or device addresses have 32 bits.
    fn has_no_such_end(name: &str) -> bool {
        let without = ["HtoA", "AtoH", "AtoA"].iter().any(|form| name[8..].starts_with(form));
        let family = name.trim_end_matches("_ptds").trim_end_matches("_ptsz");
        let has_wide_form = symbol::NAMES.iter().any(|other| other.to_str() == Ok(&format!("{family}_v2")));
        let is_first_form = !family.ends_with("_v2") && has_wide_form && !family.contains("Batch");
        without || is_first_form
    }

    #[test]
    fn every_copy_and_memset_is_looked_at_or_has_no_end_in_a_block() {
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
