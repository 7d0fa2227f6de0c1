//! Room on the device: evictions for a block or a driver call that finds none, and blocks that come
//! back at host waits. [`super::predictor`] chooses them.
//!
//! In doubt a block stays, and what finds no room goes to another tier as it would without moves.

use wm_driver::Device;
use wm_memory::Manager;

use super::vain::{LOOK, PATIENCE};
use super::{obstacle, predictor, switch, vain};
use crate::gate::GATE;

/// The driver has no room for what it needs itself: blocks move to the host until so many bytes of
/// the device are unused or no block is left; bytes that moved. Their memory on the device is
/// unused then, and still the manager's. Small blocks stay: others lie on the same memory. Waits as
/// [`make_for`]: the program's call would fail otherwise.
pub(crate) fn leave_device(manager: &Manager<Device>, bytes: u64) -> u64 {
    if !switch::is_on() || obstacle::of_process().is_some() {
        return 0;
    }
    predictor::start(manager);
    let patience = if vain::is_vain() { LOOK } else { PATIENCE };
    predictor::leave(manager, manager.device_room().saturating_add(bytes), patience)
}

/// The device has no room for a block of so many bytes: others leave. Waits, for a bounded time,
/// until the GPU has nothing to do. `false`: there is no more room than before.
pub(crate) fn make_for(manager: &Manager<Device>, bytes: u64) -> bool {
    // Asked again behind the closed gate: here it spares a wait for nothing.
    if !switch::is_on() || vain::is_vain() || obstacle::of_process().is_some() {
        return false;
    }
    let before = manager.device_room();
    if bytes <= before {
        return false;
    }
    predictor::start(manager);
    predictor::make_room(manager, bytes);
    // What came for later launches may have taken what left. Each try has to bring some, for the
    // request asks again.
    manager.device_room() > before
}

/// The host has waited: what was missed comes back, and what comes next is prepared.
pub(crate) fn come_back(manager: &Manager<Device>) {
    if !switch::is_on() || GATE.pin_reason().is_some() || manager.usage().live.host == 0 {
        return;
    }
    predictor::start(manager);
    predictor::waited(manager);
}
