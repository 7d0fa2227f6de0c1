//! Why memory stays where it is in this process, or at this moment.

use wm_abi::CUdevice;
use wm_driver::Api;

use crate::gate::GATE;
use crate::process::{callers, driver};
use crate::registry;
use crate::settings::{Guard, Settings};

/// Settings under which nothing moves: blocks are not ours, or are looked at by work of our own.
pub(crate) fn of_settings(settings: &Settings) -> Option<&'static str> {
    if !settings.stitch {
        return Some("WMSHIM_STITCH=off");
    }
    (settings.guard != Guard::Off).then_some("WMSHIM_GUARD")
}

/// What the program has done or loaded that pins memory. To be asked behind the closed gate.
pub(super) fn of_process() -> Option<&'static str> {
    GATE.graph_reason().or_else(of_sharing)
}

/// The same, without the calls of this process: for memory that none of them has passed on.
pub(super) fn of_others() -> Option<&'static str> {
    GATE.graph_reason().or_else(of_libraries).or_else(of_contexts)
}

/// The same for sharing of equal memory. Graphs do not pin it: they use addresses, and what lies
/// there stays the same.
pub(crate) fn of_sharing() -> Option<&'static str> {
    GATE.pin_reason().or_else(of_libraries).or_else(of_contexts)
}

/// The same for a block that the program gives up to the CPU. It sees to it that no context uses
/// the block; the manager looks for other contexts that it knows.
pub(crate) fn of_access() -> Option<&'static str> {
    GATE.graph_reason().or_else(|| GATE.pin_reason()).or_else(of_libraries)
}

/// Network cards, switches and storage write to buffers of such libraries, and no driver call shows
/// that they are registered.
fn of_libraries() -> Option<&'static str> {
    callers::registering_loaded()
}

/// Work of other contexts is not looked for, whatever device they are on: a copy between devices
/// runs in either.
fn of_contexts() -> Option<&'static str> {
    let is_active =
        |device: CUdevice| driver().primary_ctx_state(device).map_or(true, |(_, active)| active != 0);
    let primary = (0..registry::device_count().unwrap_or(0)).filter(|device| is_active(*device)).count();
    of_context_counts(primary, GATE.contexts_made())
}

/// `made`: contexts other than primary ones.
fn of_context_counts(primary: usize, made: u32) -> Option<&'static str> {
    (primary + made as usize != 1).then_some("the process has several contexts")
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): memory moves under work that relies on where it is.
    use super::*;

    #[test]
    fn one_context_of_either_kind_pins_nothing() {
        assert_eq!((of_context_counts(1, 0), of_context_counts(0, 1)), (None, None));
        for (primary, made) in [(1, 1), (2, 0), (0, 2), (0, 0)] {
            assert!(of_context_counts(primary, made).is_some(), "{primary} and {made}");
        }
    }
}
