//! Why memory stays where it is in this process, or at this moment.

use crate::gate::GATE;
use crate::process::callers;
use crate::registry::{self, REGISTRY};
use crate::settings::{Guard, Settings};

/// Settings under which nothing moves: blocks are not ours, or are looked at by work of our own.
pub(crate) fn of_settings(settings: &Settings) -> Option<&'static str> {
    if !settings.stitch {
        return Some("WMSHIM_STITCH=off");
    }
    (settings.guard != Guard::Off).then_some("WMSHIM_GUARD")
}

/// What the program has done or loaded that pins memory. To be asked behind the closed gate.
pub(crate) fn of_process() -> Option<&'static str> {
    GATE.graph_reason().or_else(|| GATE.pin_reason()).or_else(of_libraries).or_else(of_contexts)
}

/// The same, without the calls of this process: for memory that none of them has passed on.
pub(super) fn of_others() -> Option<&'static str> {
    GATE.graph_reason().or_else(of_libraries).or_else(of_contexts)
}

/// The same for sharing of equal memory. Graphs do not pin it: they use addresses, and what lies
/// there stays the same.
pub(crate) fn of_sharing() -> Option<&'static str> {
    GATE.unshare_reason().or_else(of_libraries).or_else(|| of_count(registry::count_contexts()))
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

/// Work of contexts like any other is looked for where memory moves.
fn of_contexts() -> Option<&'static str> {
    let has_special = REGISTRY.living_contexts.has_special();
    has_special.then_some("a context has a part of the GPU, or is used by graphics")
}

/// The kernels that compare memory run in one context.
fn of_count(contexts: Option<usize>) -> Option<&'static str> {
    (contexts != Some(1)).then_some("the process has several contexts")
}

#[cfg(test)]
mod tests {
    //! Hazard (wrong result): memory is shared under work that relies on where it is.
    use super::*;

    #[test]
    fn one_context_of_either_kind_pins_nothing() {
        assert_eq!(of_count(Some(1)), None);
        for count in [Some(0), Some(2), None] {
            assert!(of_count(count).is_some(), "{count:?}");
        }
    }
}
