//! Room on the device: evictions for a block or a driver call that finds none, and blocks that come
//! back at host waits. [`super::predictor`] chooses them.
//!
//! In doubt a block stays, and a block that finds no room goes to another tier as it would without
//! moves.

use wm_driver::Device;
use wm_memory::Manager;

use super::idle_backoff::{GLANCE, PATIENCE};
use super::{Migrations, pin_reason};
use crate::gate::GATE;

impl Migrations {
    /// The driver has no room for what it needs itself: blocks move to the host until so many bytes
    /// of the device are unused or no block is left; bytes that moved. Their memory on the device
    /// is unused then, and still the manager's. Small blocks stay: others lie on the same memory.
    /// Waits as [`Migrations::make_for`]: the program's call would fail otherwise.
    pub(crate) fn leave_device(&self, manager: &Manager<Device>, bytes: u64) -> u64 {
        if !self.is_on() || pin_reason::of_process().is_some() {
            return 0;
        }
        self.start_predictor(manager);
        let patience = if self.is_backing_off() { GLANCE } else { PATIENCE };
        let bytes = manager.device_room().saturating_add(bytes);
        self.stop_now(manager, patience, |placer, moves| placer.leave(bytes, moves))
    }

    /// The device has no room for a block of so many bytes: others leave. Waits, for a bounded
    /// time, until the GPU has nothing to do. `false`: there is no more room than before.
    pub(crate) fn make_for(&self, manager: &Manager<Device>, bytes: u64) -> bool {
        // Asked again behind the closed gate: here it spares a wait without an effect.
        if !self.is_on() || self.is_backing_off() || pin_reason::of_process().is_some() {
            return false;
        }
        let before = manager.device_room();
        if bytes <= before {
            return false;
        }
        self.start_predictor(manager);
        self.stop_now(manager, PATIENCE, |placer, moves| placer.make_room(bytes, moves));
        // Blocks that came for later launches may have taken the room of those that left. Each try
        // has to bring some, for the request asks again.
        manager.device_room() > before
    }

    /// The host has waited: blocks that launches used from the host come back, and later launches
    /// are prepared.
    pub(crate) fn come_back(&self, manager: &Manager<Device>) {
        if !self.is_on() || GATE.pin_reason().is_some() || manager.usage().live.host == 0 {
            return;
        }
        self.start_predictor(manager);
        self.host_waited(manager);
    }
}
