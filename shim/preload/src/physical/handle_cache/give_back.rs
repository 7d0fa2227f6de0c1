//! Memory that goes back to the driver: idle memory that is too much, and that of a device whose
//! contexts have ended.

use wm_abi::{CUdevice, CUresult};
use wm_driver::Tier;
use wm_memory::PieceKind;

use super::{CachedHandle, HandleCache, Vmm};

impl<V: Vmm> HandleCache<V> {
    /// Memory has no holder any more, and lies idle. If its device has no pool, it goes back to the
    /// driver: the contexts have ended, and the pool of later ones does not know the memory.
    pub(super) fn park(&mut self, number: u64) {
        let since = self.leave(number);
        let Some((since, memory)) = since.zip(self.memories.get(&number)) else { return };
        let parked = self.vmm.pool(memory.kind.device, |pool| pool.park(memory.kind, since, number));
        if parked.is_none() {
            let _left = self.give_up_handle(number);
        }
    }

    /// Unmaps and releases memory. What the driver refuses to take is not given out again. A
    /// mapping that it refuses to take stays known: it goes when the program needs the addresses.
    pub(super) fn give_up_handle(&mut self, number: u64) -> Result<(), CUresult> {
        let Some(CachedHandle { kind, idle_since, .. }) = self.memories.get(&number) else { return Ok(()) };
        let (kind, since) = (*kind, *idle_since);
        if self.vmm.pool(kind.device, |pool| pool.unpark(kind, since, number)) == Some(true) {
            self.release_memory(kind, number)
        } else {
            self.release_uncounted(number)
        }
    }

    /// The same for memory that the pool has let go. It counts until the driver has it.
    fn release_memory(&mut self, kind: PieceKind, number: u64) -> Result<(), CUresult> {
        let released = self.release_uncounted(number);
        self.vmm.pool(kind.device, |pool| pool.discharge(kind.tier, kind.bytes));
        released
    }

    pub(super) fn release_uncounted(&mut self, number: u64) -> Result<(), CUresult> {
        let Some(memory) = self.memories.remove(&number) else { return Ok(()) };
        let unmap = |at: u64| {
            let Some(view) = self.mappings.get(&at) else { return Ok(()) };
            self.vmm.unmap(at, view.bytes)?;
            self.mappings.remove(&at);
            Ok(())
        };
        let unmapped: Vec<Result<(), CUresult>> = memory.mappings.into_iter().map(unmap).collect();
        let released = self.vmm.release(memory.handle);
        unmapped.into_iter().chain([released]).collect()
    }

    /// Gives at least so many idle bytes on a device's tier back to the driver, the longest idle
    /// first, except reserved ones; returns how many.
    pub(crate) fn give_back(&mut self, device: CUdevice, tier: Tier, bytes: u64) -> u64 {
        let mut given = 0;
        while given < bytes {
            let spare = self.vmm.pool(device, |pool| pool.take_spare(tier)).flatten();
            let Some((kind, number)) = spare else { break };
            if self.release_memory(kind, number).is_ok() {
                given += kind.bytes;
            }
        }
        given
    }

    /// Idle memory of the host of so many bytes leaves the cache, and is mapped nowhere any more.
    /// `None`: there is none that a device's manager could have made, or the driver refuses.
    pub(crate) fn take_idle(&mut self, device: CUdevice, bytes: u64) -> Option<u64> {
        let (kind, number) = self.vmm.pool(device, |pool| pool.oldest_on(Tier::Host, bytes))??;
        let CachedHandle { handle, idle_since, movable, ref mappings, .. } = *self.memories.get(&number)?;
        if !movable {
            return None;
        }
        for at in mappings.clone() {
            self.take_down(at).ok()?;
        }
        self.vmm.pool(device, |pool| {
            pool.unpark(kind, idle_since, number);
            pool.discharge(kind.tier, kind.bytes);
        })?;
        self.memories.remove(&number);
        Some(handle)
    }

    /// The contexts of a device are gone: gives its idle memory back. Handles and mappings belong
    /// to no context, so those that the program has live on.
    pub(crate) fn end_device(&mut self, device: CUdevice) {
        let of_device = self.memories.iter().filter(|(_, memory)| memory.kind.device == device);
        let idle = of_device.filter(|(_, memory)| memory.holder.is_none()).map(|(number, _)| *number);
        for number in idle.collect::<Vec<_>>() {
            let _left = self.give_up_handle(number);
        }
    }
}
