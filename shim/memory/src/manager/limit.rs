//! The device's limit, changed while the program runs.
//!
//! A request sees the limit under the manager's lock, so none that begins after the change is met
//! beyond it with new memory. A plan that was drafted before may still end beyond it: the one that
//! changed the limit looks again. What is held beyond the limit stays usable. It goes by moves, by
//! frees, and with idle memory.

use wm_driver::{Gpu, Tier};

use super::Manager;
use crate::state::State;
use crate::sync::atomic::Ordering::Relaxed;

/// What a program may make anew while its memory leaves, at most, and as a part of its limit.
const ROOM: u64 = 512 << 20;
const ROOM_PART: u64 = 16;

/// Memory leaves the device until its limit is kept. Until this is dropped, what the program frees
/// and makes again lies on the device as before: on the host it would make each kernel slow that
/// uses it, and memory leaves only between kernels.
#[must_use = "it ends at once"]
pub struct LimitDescent<'a, G: Gpu> {
    manager: &'a Manager<G>,
}

impl<G: Gpu> LimitDescent<'_, G> {
    /// Of the bytes beyond the limit, those of idle memory that go before any block leaves.
    pub fn unused_beyond_limit(&self) -> u64 {
        let state = self.manager.lock();
        let idle = state.idle_on_device() + state.pool.idle(Tier::Device);
        state.limits.excess(state.held().device).min(idle.saturating_sub(state.room_to_make_anew()))
    }

    /// Some has left: as much less may be held.
    pub fn has_left(&self) {
        self.manager.lock().descend();
    }
}

impl State {
    /// Bytes of idle memory that stay meanwhile, and that may be made beyond what is held.
    fn room_to_make_anew(&self) -> u64 {
        ROOM.min(self.limits.device / ROOM_PART)
    }

    /// What is held now may be held until the limit is kept, with that room.
    fn descend(&mut self) {
        let held = self.held().device;
        let is_beyond = self.limits.excess(held) > 0;
        self.limits.descent = if is_beyond { held + self.room_to_make_anew() } else { 0 };
    }
}

impl<G: Gpu> Drop for LimitDescent<'_, G> {
    fn drop(&mut self) {
        self.manager.lock().limits.descent = 0;
    }
}

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

    /// Begins to make memory leave until the limit is kept. One thread does that at a time.
    pub fn descend_to_limit(&self) -> LimitDescent<'_, G> {
        self.lock().descend();
        LimitDescent { manager: self }
    }

    /// Bytes of the device, at its limit, that nothing comes back to: they serve what the program
    /// frees and makes again. 0 where there is no limit.
    pub fn room_at_limit(&self) -> u64 {
        let state = self.lock();
        if state.limits.device == u64::MAX { 0 } else { state.room_to_make_anew() }
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
