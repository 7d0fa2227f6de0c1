//! The manager of each device, made at the first allocation there.
//!
//! Managers are leaked on purpose, also when their context ends: another thread may be inside one,
//! and blocks' addresses outlive contexts. One whose device has no context any more rests, and is
//! the device's again once it has one: what a manager takes, it takes once a device, however often
//! a program resets it.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use wm_abi::CUdevice;
use wm_driver::Device;
use wm_memory::Manager;

use crate::process::{THREAD_HOT, streams};

/// Devices by ordinal; more than any machine has.
pub(super) const DEVICES: usize = 64;

static MANAGERS: [AtomicPtr<Manager<Device>>; DEVICES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; DEVICES];

/// No device from here on has a manager. A program has few devices, and a look for an address's
/// owner asks each.
static END: AtomicUsize = AtomicUsize::new(0);

/// Managers of devices without a context. They hold nothing.
static RESTING: [AtomicPtr<Manager<Device>>; DEVICES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; DEVICES];

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

/// The manager whose address space contains `address`; the current device's first, for it is mostly
/// that one.
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

/// Of two threads that made a manager at once, one wins; the other's has done nothing yet, and
/// rests.
pub(super) fn publish(index: usize, manager: &'static Manager<Device>) -> &'static Manager<Device> {
    END.fetch_max(index + 1, Ordering::AcqRel);
    let null = std::ptr::null_mut();
    let fresh = std::ptr::from_ref(manager).cast_mut();
    match MANAGERS[index].compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => manager,
        Err(winner) => {
            RESTING[index].store(fresh, Ordering::Release);
            // SAFETY: not null, and leaked.
            unsafe { &*winner }
        }
    }
}

/// The manager that the device had, whose contexts are all gone.
pub(super) fn wake(index: usize) -> Option<&'static Manager<Device>> {
    // SAFETY: null or leaked, as in `existing`.
    unsafe { RESTING[index].swap(std::ptr::null_mut(), Ordering::AcqRel).as_ref() }
}

/// A manager that was taken away holds nothing any more.
pub(crate) fn rest(device: CUdevice, manager: &'static Manager<Device>) {
    if let Some(slot) = usize::try_from(device).ok().and_then(|index| RESTING.get(index)) {
        slot.store(std::ptr::from_ref(manager).cast_mut(), Ordering::Release);
    }
}

/// Takes the device's manager away, whose contexts are gone. Once it holds nothing, it may
/// [`rest`].
pub(crate) fn take(device: CUdevice) -> Option<&'static Manager<Device>> {
    let slot = usize::try_from(device).ok().and_then(|index| MANAGERS.get(index))?;
    let manager = slot.swap(std::ptr::null_mut(), Ordering::AcqRel);
    streams().advance_epoch();
    // SAFETY: null or leaked, as in `existing`.
    unsafe { manager.as_ref() }
}
