//! The calls that pass the gate while `WMSHIM_MIGRATE` or `WMSHIM_DEDUP` is on: those that submit
//! work, read mappings, or rely on them from then on.
//!
//! Each has an entry here. The entry passes the gate, tells sharing of the call's writes, and calls
//! the function that would be in the slot otherwise: the entry of the function's row, or the real
//! function. So a hooked call passes before its handler asks for anything, as a copy does for
//! borders. With both settings off, no slot leads here.
//!
//! `shim/abi/data/driver.tsv` says which functions pass, and the writes of each (columns `gate`,
//! `stream`, `writes`). A call there names parameters, so a row that fits another function does not
//! compile. Events pass in neither direction: they touch no memory, and one that is recorded late
//! makes at most a device look busy. A call that waits for the GPU does not pass: it submits
//! nothing, and it would hold up every migration.

use wm_abi::symbol::{self, Symbol};

use crate::gate::{GATE, Passage};
use crate::hooks::call::boundary;
use crate::subsystems::PROCESS;

/// A function that passes.
struct Gated {
    index: usize,
    entry: *const (),
    /// Sets the function that the entry calls.
    lead_to: fn(*const ()),
}

/// Declares them from the table's cells: the parameters, the passage, the stream, the call of
/// [`writes`] that is made before the driver's, and the one that is made after it succeeded.
///
/// A call that makes, changes or ends a graph names a function of [`graph_uses`], too, one that
/// makes a context a function of [`made`], and one from which on blocks stay where they are a
/// function of [`kept`].
///
/// [`writes`]: crate::hooks::work::writes
/// [`graph_uses`]: crate::hooks::work::graph_uses
/// [`made`]: crate::hooks::work::made
/// [`kept`]: crate::hooks::work::kept
macro_rules! gated {
    ($($name:ident $parameters:tt: $passage:expr, $stream:tt $(, graph $graph:ident $named:tt)?
        $(, context $made:ident $place:tt)? $(, keeps $keeps:ident $range:tt)? =>
        $($before:ident $told:tt $(then $after:ident $result:tt)?)?;)*) => {
        #[allow(non_upper_case_globals, reason = "named after the driver's functions")]
        mod next {
            use wm_abi::symbol;

            use crate::process::CachedFn;

            $(pub(super) static $name: CachedFn<symbol::$name> = CachedFn::new();)*
        }

        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's functions")]
        mod entry {
            use std::ffi::{c_char, c_int, c_uint, c_void};

            use wm_abi::symbol::{self, Symbol};
            use wm_abi::*;

            use crate::gate::{GATE, Passage::*, PinReason::*};
            use crate::hooks::gated::{come_home, come_home_at, come_home_for_graphs, next, pins};
            use crate::hooks::call::stream::{is_per_thread, record_per_thread};
            use crate::hooks::work::writes::{self, ToldCall};
            use crate::hooks::work::{graph_uses, kept, made};
            use crate::subsystems::PROCESS;

            $(gated_entry!($name $parameters: $passage, $stream $(, graph $graph $named)? $(, context $made $place)?
                $(, keeps $keeps $range)? => $($before $told $(then $after $result)?)?);)*
        }

        const GATED: &[Gated] = &[
            $(Gated {
                index: <symbol::$name as Symbol>::INDEX,
                entry: entry::$name as *const (),
                lead_to: |next| next::$name.replace(next),
            },)*
        ];
    };
}

macro_rules! gated_entry {
    ($name:ident($($argument:ident: $type:ty),*): $passage:expr, $stream:tt
        $(, graph $graph:ident($($named:ident),*))? $(, context $made:ident($($place:ident),*))?
        $(, keeps $keeps:ident($($range:ident),*))? =>
        $($before:ident($($told:ident),*) $(then $after:ident($($result:ident),*))?)?) => {
        pub(super) unsafe extern "C" fn $name($($argument: $type),*) -> CUresult {
            record_per_thread(const { is_per_thread(stringify!($name)) });
            if const { pins($passage) } {
                come_home();
            }
            if const { matches!($passage, Graph) } {
                come_home_for_graphs();
            }
            $(come_home_at(&[$($range as u64),*]);)?
            GATE.pass($passage, || {
                $(kept::$keeps($($range as u64),*);)?
                $(if PROCESS.sharing.is_on() {
                    let call = told_call!($name, $stream);
                    // SAFETY: the program's arguments, for the function that it called.
                    #[allow(unused_unsafe, reason = "some take no pointers")]
                    unsafe { writes::$before(call $(, $told)*) };
                })?
                // SAFETY: the same.
                let code = unsafe { next::$name.get()($($argument),*) };
                $($(if code == CUresult::SUCCESS && PROCESS.sharing.is_on() {
                    // SAFETY: the same, and the driver wrote its answers.
                    #[allow(unused_unsafe, reason = "some take no pointers")]
                    unsafe { writes::$after($($result),*) };
                })?)?
                $(if PROCESS.moves.is_on() {
                    // SAFETY: the same.
                    #[allow(unused_unsafe, reason = "some take no pointers")]
                    unsafe { graph_uses::$graph(code, $($named),*) };
                })?
                $({
                    // SAFETY: the same, and the driver wrote its answers.
                    unsafe { made::$made(code, $($place),*) };
                })?
                code
            })
        }
        const _: <symbol::$name as Symbol>::Function = $name;
    };
}

macro_rules! told_call {
    ($name:ident, [$($stream:ident)?]) => {
        const { ToldCall::new(stringify!($name)) }$(.in_stream($stream))?
    };
}

/// Does memory stay where it is from such a call on?
const fn pins(passage: Passage) -> bool {
    matches!(passage, Passage::Pin(_))
}

/// A call is about to pin memory: what was evicted comes back first, once.
#[cold]
fn come_home() {
    if !GATE.is_pinned() && GATE.is_on() {
        boundary::observe(|| PROCESS.moves.come_home());
    }
}

/// A block is about to stay where it is: what was evicted of it comes back first. `range`: an
/// address in it, and perhaps bytes.
#[cold]
fn come_home_at(range: &[u64]) {
    if let [address, ..] = range
        && GATE.is_on()
    {
        boundary::observe(|| PROCESS.moves.come_home_at(*address));
    }
}

/// The first graph is about to be made: blocks that it may name come back before it does.
fn come_home_for_graphs() {
    if PROCESS.moves.meets_first_graph() {
        come_home();
    }
}

/// The address for a function's slot, which would lead to `next` without a gate.
pub(super) fn around(index: usize, next: *const ()) -> *const () {
    let gated = GATE.is_on().then(|| GATED.iter().find(|gated| gated.index == index)).flatten();
    gated.map_or(next, |gated| {
        (gated.lead_to)(next);
        gated.entry
    })
}

include!("generated/gated.rs");

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): a function of a new driver submits work while memory migrates,
    //! because its row says that it does not pass the gate.
    use std::collections::BTreeSet;

    use super::*;

    fn name(index: usize) -> &'static str {
        symbol::NAMES[index].to_str().expect("a name")
    }

    /// By the functions' names, so that a mistake in the table shows.
    #[test]
    fn what_is_called_a_launch_a_copy_or_a_set_passes() {
        let inside: BTreeSet<&str> = GATED.iter().map(|gated| name(gated.index)).collect();
        let submits =
            ["cuLaunch", "cuMemcpy", "cuMemset", "cuGraphLaunch", "cuStreamWriteValue", "cuStreamBatchMemOp"];
        let named =
            (0..symbol::COUNT).map(name).filter(|name| submits.iter().any(|start| name.starts_with(start)));
        let missing: Vec<_> = named.filter(|name| !inside.contains(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
