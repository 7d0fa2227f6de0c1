//! Hooks: our work in a call of the program, beside the driver's own.
//!
//! `shim/abi/data/driver.tsv` describes each driver function. [`gated`] and [`bounded`] follow from
//! it; they stand before a function's entry. `table.rs` says which functions have an entry of their
//! own: the names that one handler serves, the handler, the switch that turns the row off, and the
//! purpose. Parameters come from `driver.tsv`, so a handler with other ones does not compile. The
//! slots of the trampolines and `wmctl hooks` are made from the rows.
//!
//! A handler is named after the call that it serves: `memcpy_htod_async` serves
//! `cuMemcpyHtoDAsync`. The folders group handlers by subject: [`call`] has the parts of every
//! handler, [`memory`] and [`order`] serve memory, contexts and waits, [`copy`] and [`work`] serve
//! the work of the GPU.

mod bounded;
mod call;
mod copy;
mod gated;
mod memory;
mod order;
mod torch_blocks;
mod work;

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use wm_abi::symbol::{self, COUNT, Symbol};
use wm_abi::*;

use crate::counters::{COUNTERS, Calls};
use crate::launches;
use crate::process::CachedFn;
use crate::settings::{self, Multipath, Settings};
use call::boundary::{Pace, enter_hook};
pub(crate) use call::exports::Exports;
pub(crate) use call::stream::is_per_thread;
use call::stream::{DefaultStreamOf, Legacy, PerThread, record_per_thread};
use call::{arrays, exports, initialise, lookup, oom, stream};
use copy::{batch, batch_volumes, linear, shaped};
pub(crate) use memory::allocate_placed;
use memory::{
    address_ranges, allocate, granted, passed_on, peer_access, physical, pointer, pool, reserved, sharing,
};
use order::{context, wait};
use work::{code, graph, launch};

/// The settings that turn a row off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Switch {
    /// `WMSHIM_DISABLE` only.
    Always,
    /// Also `WMSHIM_STITCH=off`.
    Memory,
    /// Also `WMSHIM_STITCH=off` together with `WMSHIM_MULTIPATH=off`: both features need the call.
    Lifetimes,
    /// The same, and withdrawn in a process with one device: copies that may take several links, or
    /// touch a peer's blocks.
    Copies,
}

impl Switch {
    fn is_on(self, settings: &Settings) -> bool {
        match self {
            Self::Always => true,
            Self::Memory => settings.stitch,
            Self::Lifetimes | Self::Copies => settings.stitch || settings.multipath != Multipath::Off,
        }
    }

    fn setting(self) -> &'static str {
        match self {
            Self::Always => "WMSHIM_DISABLE",
            Self::Memory => "WMSHIM_STITCH",
            Self::Lifetimes | Self::Copies => "WMSHIM_STITCH and WMSHIM_MULTIPATH",
        }
    }
}

/// One intercepted function.
struct Row {
    name: &'static CStr,
    handler: &'static str,
    switch: Switch,
    purpose: &'static str,
    hook: *const (),
    calls: &'static Calls,
}

// SAFETY: `hook` is a function's address; everything else is data or atomic.
unsafe impl Sync for Row {}

impl Row {
    const fn new<S: Symbol>(
        handler: &'static str,
        switch: Switch,
        purpose: &'static str,
        hook: *const (),
        hot: &'static HookHot<S>,
    ) -> Self {
        Self { name: S::NAME, handler, switch, purpose, hook, calls: &hot.calls }
    }

    fn name(&self) -> &'static str {
        self.name.to_str().unwrap_or_default()
    }
}

/// The data of one hook that every call of it touches, in one cache line: its counters, and the
/// real function.
#[repr(align(64))]
struct HookHot<S> {
    calls: Calls,
    real: CachedFn<S>,
}

impl<S: Symbol> HookHot<S> {
    const fn new() -> Self {
        Self { calls: Calls::new(), real: CachedFn::new() }
    }
}

/// Declares rows. A row names functions, and the cells that are the same for all of them; their
/// parameters are the driver's, from `wm-abi`.
///
/// A row of `serve` has a handler, which returns a result or forwards the call. A row of `retry`
/// has none: it makes the real call, and notes the stream that the call works in, if it has one. In
/// both, a real call that returns out of memory is made again after some of our idle memory was
/// given back.
macro_rules! hooks {
    (
        serve { $($($name:ident),+ => $handler:expr, $switch:ident, $purpose:literal;)* }
        retry { $($($plain:ident),+ => $what:literal;)* }
    ) => {
        const ROW_COUNT: usize = [$($(stringify!($name),)+)* $($(stringify!($plain),)+)*].len();

        /// Index of each row's function.
        const INDICES: [usize; ROW_COUNT] =
            [$($(<symbol::$name as Symbol>::INDEX,)+)* $($(<symbol::$plain as Symbol>::INDEX,)+)*];

        #[allow(non_upper_case_globals, reason = "named after the driver's functions")]
        mod hot {
            use super::*;
            $($(pub(super) static $name: HookHot<symbol::$name> = HookHot::new();)+)*
            $($(pub(super) static $plain: HookHot<symbol::$plain> = HookHot::new();)+)*
        }

        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's functions")]
        mod entry {
            use super::*;
            $($(wm_abi::with_parameters!($name => serve_entry!($name, $handler));)+)*
            $($(wm_abi::with_parameters!($plain => retry_entry!($plain));)+)*
        }

        static ROWS: [Row; ROW_COUNT] = [
            $($(Row::new::<symbol::$name>(stringify!($handler), Switch::$switch, $purpose, entry::$name as *const (), &hot::$name),)+)*
            $($(Row::new::<symbol::$plain>("oom::retry_counted", Switch::Memory, $what, entry::$plain as *const (), &hot::$plain),)+)*
        ];
    };
}

/// The function that the slot of a served call leads to.
///
/// `Function` and `NullStream` are for the row's handler, which may be generic: the function that
/// is called, and the stream that its null handle means.
macro_rules! serve_entry {
    (($($argument:ident: $type:ty),*) $name:ident, $handler:expr) => {
        pub(super) unsafe extern "C" fn $name($($argument: $type),*) -> CUresult {
            #[allow(dead_code, reason = "most handlers are not generic")]
            type Function = symbol::$name;
            #[allow(dead_code, reason = "as above")]
            type NullStream = DefaultStreamOf<{ is_per_thread(stringify!($name)) }>;
            record_per_thread(const { is_per_thread(stringify!($name)) });
            enter_hook(
                &hot::$name.calls,
                pace!($name),
                // SAFETY: the program's arguments, under the driver's own rules for them.
                #[allow(unused_unsafe, reason = "some handlers take no pointers")]
                || unsafe { $handler($($argument),*) }.into(),
                // SAFETY: as above. A call that returned out of memory did nothing.
                || oom::retry(|| unsafe { hot::$name.real.get()($($argument),*) }),
            )
        }
        const _: <symbol::$name as Symbol>::Function = $name;
    };
}

/// The function that the slot of a call leads to whose row is in `retry`.
macro_rules! retry_entry {
    ($parameters:tt $name:ident) => { retry_entry!($parameters $parameters $name); };
    (($($argument:ident: $type:ty),*) $parameters:tt $name:ident) => {
        pub(super) unsafe extern "C" fn $name($($argument: $type),*) -> CUresult {
            record_per_thread(const { is_per_thread(stringify!($name)) });
            let _call = record_stream!($parameters);
            observe_launch!($name $parameters);
            oom::retry_counted(
                &hot::$name.calls,
                least_bytes!($parameters),
                // SAFETY: the program's arguments. A call that returned out of memory did nothing.
                || unsafe { hot::$name.real.get()($($argument),*) },
            )
        }
        const _: <symbol::$name as Symbol>::Function = $name;
    };
}

/// Notes the stream that a call names, or that its launch configuration names, for as long as the
/// value lives; nothing if no parameter is either.
macro_rules! record_stream {
    (($stream:ident: CUstream $($rest:tt)*)) => { stream::enter_with_work($stream) };
    (($config:ident: *const CUlaunchConfig $($rest:tt)*)) => { stream::enter_with_work($config) };
    (($other:ident: $type:ty $(, $($rest:tt)*)?)) => { record_stream!(($($($rest)*)?)) };
    (()) => { () };
}

/// The bytes of the device that a call takes at least: those of an array, else 0.
macro_rules! least_bytes {
    (($handle:ident: *mut CUarray, $array:ident: $type:ty)) => {
        arrays::least_bytes($array)
    };
    (($($argument:ident: $type:ty),*)) => {
        0
    };
}

/// Shows a launch to those that have subscribed.
macro_rules! observed {
    ($default:ident ($($argument:ident: $type:ty),*)) => {
        if launches::is_observed() {
            // SAFETY: the arguments of a launch function, which the program passes to the driver
            // next.
            unsafe { launch::observe::<$default>(&($($argument,)*)) };
        }
    };
}

include!("generated/facts.rs");
include!("table.rs");

/// To be called before the first hook is connected: hands the trampolines to the hooks, and the
/// hooks' counters to statistics.
pub(crate) fn prepare(exports: &'static Exports) {
    let copies = ROWS.iter().zip(INDICES).filter(|(row, _)| row.switch == Switch::Copies);
    exports::set(exports, copies.map(|(_, index)| index), |index, next| {
        around(index, next, settings::load())
    });
    COUNTERS.set_hooked(|| ROWS.iter().map(|row| (row.name(), row.calls.read())).collect());
}

/// The hook for a function under these settings. `real` is the driver's function.
pub(crate) fn address(index: usize, settings: &Settings, real: *const ()) -> Option<*const ()> {
    let row = ROWS.get(usize::from(BY_INDEX[index])).filter(|row| row.switch.is_on(settings));
    let entry = around(index, row.map_or(real, |row| row.hook), settings);
    (entry != real).then_some(entry)
}

/// The checks and the gate before a function's entry, if it has any; else `next`.
fn around(index: usize, next: *const (), settings: &Settings) -> *const () {
    let next = gated::around(index, next);
    if settings.stitch { bounded::around(index, next) } else { next }
}

/// Position of each function's row in [`ROWS`]; beyond the end for functions without a row.
/// Computed by the compiler, because the first call of a process may come from a thread with little
/// stack.
const BY_INDEX: &[u16; COUNT] = &{
    let mut positions = [u16::MAX; COUNT];
    let mut position = 0;
    while position < ROW_COUNT {
        positions[INDICES[position]] = position as u16;
        position += 1;
    }
    positions
};

/// A launch is shown by the entry of its row, so each launch function has one.
const _: () = {
    let mut launch = 0;
    while launch < LAUNCHES.len() {
        assert!((BY_INDEX[LAUNCHES[launch]] as usize) < ROW_COUNT, "a launch function without a row");
        launch += 1;
    }
};

/// Is this stream being captured? Null is the legacy default stream.
pub(crate) fn is_captured(stream: CUstream) -> bool {
    stream::is_captured::<Legacy>(stream)
}

/// The table for `wmctl hooks`: a JSON array, NUL-terminated, valid for the life of the process.
#[unsafe(no_mangle)]
extern "C" fn wmshim_hooks_json() -> *const c_char {
    exports::TABLES.json.get_or_init(|| CString::new(describe().to_string()).unwrap_or_default()).as_ptr()
}

fn describe() -> serde_json::Value {
    let rows = ROWS.iter().map(|row| {
        serde_json::json!({
            "symbol": row.name(),
            "handler": row.handler.split("::<").next(),
            "switch": row.switch.setting(),
            "purpose": row.purpose,
        })
    });
    let others = bounded::all().filter(|(index, _)| usize::from(BY_INDEX[*index]) >= ROW_COUNT);
    let others = others.map(|(index, check)| {
        serde_json::json!({
            "symbol": symbol::NAMES[index].to_str().unwrap_or_default(),
            "handler": check,
            "switch": Switch::Memory.setting(),
            "purpose": "refused where it runs past the end of a block",
        })
    });
    rows.chain(others).collect()
}
