//! Memory that other processes use, too.

use wm_driver::{Handle, Tier};

use super::Model;

impl Model {
    /// Is others' memory mapped there?
    pub fn is_foreign(&self, address: u64) -> bool {
        let inner = self.lock();
        let (handle, _) = inner.place(address);
        inner.physical[&handle].foreign
    }

    /// Others' memory that is held or mapped.
    pub fn foreign_bytes(&self) -> u64 {
        self.lock().physical.values().filter(|physical| physical.foreign).map(|physical| physical.bytes).sum()
    }

    /// Other processes use a handle from now on.
    pub fn give_away(&self, handle: Handle) {
        self.lock().give_away(handle.0);
    }

    /// Bytes of others' memory that can be taken back. It takes none of the device here until then,
    /// but no device has more than it has.
    pub fn room_to_take_back(&self) -> u64 {
        let inner = self.lock();
        inner.capacity[&Tier::Device] - inner.held(Tier::Device)
    }

    /// The memory at an address.
    pub fn memory_at(&self, address: u64) -> Handle {
        let inner = self.lock();
        Handle(inner.place(address).0)
    }

    /// No other process uses a handle any more. It may be gone.
    pub fn take_back(&self, handle: Handle) {
        let mut inner = self.lock();
        let Some(physical) = inner.physical.get_mut(&handle.0) else { return };
        if std::mem::replace(&mut physical.foreign, false) {
            let (tier, bytes) = (physical.tier, physical.bytes);
            *inner.held.entry(tier).or_default() += bytes;
        }
    }

    /// Other processes use a handle still. It may be gone.
    pub fn leave_to_others(&self, handle: Handle) {
        let mut inner = self.lock();
        if inner.physical.contains_key(&handle.0) {
            inner.give_away(handle.0);
        }
    }
}
