//! The manager of each device, made at the first allocation there.
//!
//! Managers are leaked on purpose, also when their context ends: another thread may be inside one, and blocks' addresses
//! outlive contexts.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use wm_abi::CUdevice;
use wm_driver::Device;
use wm_memory::Manager;

use crate::process::{THREAD_HOT, streams};

/// Devices by ordinal; more than any machine has.
pub(super) const DEVICES: usize = 64;

static MANAGERS: [AtomicPtr<Manager<Device>>; DEVICES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; DEVICES];

/// No device from here on has a manager. A program has few devices, and those who look for an address's owner ask each.
static END: AtomicUsize = AtomicUsize::new(0);

/// The device's manager, if it has one yet.
pub(crate) fn existing(device: CUdevice) -> Option<&'static Manager<Device>> {
    let slot = MANAGERS.get(usize::try_from(device).ok()?)?;
    // SAFETY: a manager is leaked when it is stored, so the pointer is null or valid for ever.
    unsafe { slot.load(Ordering::Acquire).as_ref() }
}

/// Has any device a manager?
pub(crate) fn any() -> bool {
    all().next().is_some()
}

/// Every manager there is.
pub(crate) fn all() -> impl Iterator<Item = &'static Manager<Device>> {
    (0..END.load(Ordering::Acquire) as CUdevice).filter_map(existing)
}

/// The manager whose address space contains `address`; the current device's first, for it is mostly that one.
#[inline]
pub(crate) fn owner(address: u64) -> Option<&'static Manager<Device>> {
    let last = THREAD_HOT.with(|mine| mine.last.get()).map(|last| last.site.manager);
    last.filter(|manager| manager.gpu().contains(address)).or_else(|| search(address))
}

#[cold]
#[inline(never)]
fn search(address: u64) -> Option<&'static Manager<Device>> {
    all().find(|manager| manager.gpu().contains(address))
}

/// Of two threads that made a manager at once, one wins; the other's has done nothing yet.
pub(super) fn publish(index: usize, manager: Manager<Device>) -> &'static Manager<Device> {
    let fresh = Box::into_raw(Box::new(manager));
    let slot = &MANAGERS[index];
    END.fetch_max(index + 1, Ordering::AcqRel);
    let null = std::ptr::null_mut();
    let stored = slot.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire);
    // SAFETY: both pointers come from `Box::into_raw` and are never freed.
    unsafe { &*stored.map_or_else(|winner| winner, |_| fresh) }
}

/// Takes the device's manager away, whose contexts are gone: the next allocation there makes another one.
pub(crate) fn take(device: CUdevice) -> Option<&'static Manager<Device>> {
    let slot = usize::try_from(device).ok().and_then(|index| MANAGERS.get(index))?;
    let manager = slot.swap(std::ptr::null_mut(), Ordering::AcqRel);
    streams().advance_epoch();
    // SAFETY: null or leaked, as in `existing`.
    unsafe { manager.as_ref() }
}
