//! Memory that other processes use, too.

use wm_driver::Handle;

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

    /// No other process uses the memory at an address any more.
    pub fn take_back(&self, address: u64) {
        let mut inner = self.lock();
        let (handle, _) = inner.place(address);
        let physical = inner.physical.get_mut(&handle).expect("a handle that exists");
        if std::mem::replace(&mut physical.foreign, false) {
            let (tier, bytes) = (physical.tier, physical.bytes);
            *inner.held.entry(tier).or_default() += bytes;
        }
    }

    /// Other processes use the memory at an address, still.
    pub fn leave_to_others(&self, address: u64) {
        let mut inner = self.lock();
        let (handle, _) = inner.place(address);
        inner.give_away(handle);
    }
}
