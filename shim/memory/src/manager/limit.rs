//! The device's limit, changed while the program runs.
//!
//! A request sees the limit under the manager's lock, so none that begins after the change is met
//! beyond it with new memory. A plan that was drafted before may still end beyond it: the one that
//! changed the limit looks again. What is held beyond the limit stays usable. It goes by moves, by
//! frees, and with idle memory.

use wm_driver::{Gpu, Tier};

use super::Manager;
use crate::sync::atomic::Ordering::Relaxed;

impl<G: Gpu> Manager<G> {
    /// Bytes of the device that blocks and pieces may have together; `u64::MAX` for all.
    pub fn device_limit(&self) -> u64 {
        self.lock().limits.device
    }

    /// Changes the limit of the device, in bytes. `capacity`: the most that all tiers have together
    /// then. Nothing moves, and nothing is given back.
    pub fn limit_device(&self, bytes: u64, capacity: u64) {
        self.capacity.store(capacity, Relaxed);
        self.lock().set_device_limit(bytes);
        self.gpu.changed();
        self.waiters.notify();
    }

    /// Is idle memory kept for later blocks and pieces, as the settings say? If it is not, all of
    /// it goes to the driver at the next look.
    pub fn keep_idle(&self, keeps: bool) {
        self.lock().limits.keeps_idle = keeps;
    }

    /// Bytes of the device that are held beyond the limit.
    pub fn bytes_beyond_limit(&self) -> u64 {
        let state = self.lock();
        state.limits.excess(state.held().device)
    }

    /// Bytes of the device that blocks and pieces hold, used or idle, those included that plans
    /// under way will make.
    pub fn held_on_device(&self) -> u64 {
        self.lock().held().on(Tier::Device)
    }
}
