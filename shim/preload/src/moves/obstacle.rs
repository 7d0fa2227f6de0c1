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

/// What the program has done or loaded that memory has to stay for. To be asked behind the closed
/// gate.
pub(super) fn of_process() -> Option<&'static str> {
    GATE.pin_reason().or_else(of_libraries).or_else(of_contexts)
}

/// What goes with no sharing of equal memory. Graphs do: they use addresses, and what lies there
/// stays the same.
pub(crate) fn to_sharing() -> Option<&'static str> {
    GATE.pin_reason_beside_graphs().or_else(of_libraries).or_else(of_contexts)
}

/// Their buffers are written by network cards, switches and storage, whose registrations no driver
/// call shows.
fn of_libraries() -> Option<&'static str> {
    callers::is_any_registering_loaded()
        .then_some("a library is loaded that may register memory with other devices")
}

/// Work of other contexts is not looked for, whatever device they are on: a copy between devices
/// runs in either.
fn of_contexts() -> Option<&'static str> {
    const SEVERAL: &str = "the process has several contexts";
    let is_active =
        |device: CUdevice| driver().primary_ctx_state(device).map_or(true, |(_, active)| active != 0);
    let primary = (0..registry::device_count().unwrap_or(0)).filter(|device| is_active(*device)).count();
    (primary + GATE.contexts_made() as usize != 1).then_some(SEVERAL)
}
