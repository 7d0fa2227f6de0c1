//! The shelf of this process: what PyTorch's expandable segments give up and get again, with the
//! driver's calls.
//!
//! Only with `WMSHIM_TORCH_PIECES=keep`, and only for PyTorch's allocator, which passes its handles
//! only to calls that are intercepted here. The lock is held across the driver's calls, because two
//! threads must not change mappings of one handle at once (see wm-memory's `mapping_lock`); none of
//! them waits for the GPU.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wm_abi::*;
use wm_driver::api::{Failed, Named};
use wm_driver::{Api, Device, Tier};
use wm_memory::{Keep, Manager};

use super::shelf::{Access, MemoryKind, Shelf, Vmm};
use crate::idle::{self, IdleKind};
use crate::process::{callers, driver};
use crate::registry;
use crate::settings::{self, TorchPieces};

static SHELF: Mutex<Shelf> = Mutex::new(Shelf::new());

/// Is there anything on the shelf, or was there? Until then no lock is taken.
static USED: AtomicBool = AtomicBool::new(false);

/// How much of what is idle on a device stays.
static KEEPS: Mutex<BTreeMap<CUdevice, KeptIdle>> = Mutex::new(BTreeMap::new());

#[derive(Debug, Default)]
struct KeptIdle {
    keep: Keep,
    /// The least that was idle since the period began, in bytes.
    least: u64,
}

/// Where idle memory may lie.
const TIERS: [Tier; 2] = [Tier::Device, Tier::Host];

/// The time after a refusal in which memory that PyTorch gives up is for its second attempt. It
/// waits for its streams before, where kernels that use host memory may take seconds; a thread that
/// has mapped a piece since, or was refused again, is no longer at it.
const EMPTYING: Duration = Duration::from_secs(60);

thread_local! {
    /// When this thread was refused a piece, and has mapped none since.
    static REFUSED: Cell<Option<Instant>> = const { Cell::new(None) };
}

fn shelf() -> Option<MutexGuard<'static, Shelf>> {
    USED.load(Relaxed).then(|| SHELF.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The driver's calls.
struct DriverCalls;

impl Vmm for DriverCalls {
    fn make(&self, kind: &MemoryKind) -> Result<u64, CUresult> {
        let property = CUmemAllocationProp {
            type_: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: kind.handle_types,
            location: location(kind.device, kind.tier).ok_or(CUresult::INVALID_DEVICE)?,
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationFlags { gpuDirectRDMACapable: kind.rdma.into(), ..Default::default() },
        };
        answered(0, kind.bytes, Named(driver()).mem_create(kind.bytes as usize, &property))
    }

    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), CUresult> {
        answered(address, bytes, Named(driver()).mem_map(address, bytes as usize, handle))
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), CUresult> {
        answered(address, bytes, Named(driver()).mem_unmap(address, bytes as usize))
    }

    fn release(&self, handle: u64) -> Result<(), CUresult> {
        answered(handle, 0, Named(driver()).mem_release(handle))
    }

    fn allow(&self, address: u64, bytes: u64, access: &Access) -> Result<(), CUresult> {
        let entry = |(device, flags): &(CUdevice, u32)| CUmemAccessDesc {
            location: CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: *device },
            flags: *flags,
        };
        let entries: Vec<CUmemAccessDesc> = access.iter().map(entry).collect();
        answered(address, bytes, Named(driver()).mem_set_access(address, bytes as usize, &entries))
    }
}

/// Where memory of a tier is made for a device; `None` if the device has no manager, which knows
/// the host's part.
pub(crate) fn location(device: CUdevice, tier: Tier) -> Option<CUmemLocation> {
    match tier {
        Tier::Host => registry::of_device(device)
            .map(|manager| CUmemLocation { type_: CU_MEM_LOCATION_TYPE_HOST_NUMA, id: manager.gpu().node() }),
        _ => Some(CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: device }),
    }
}

fn answered<T>(at: u64, bytes: u64, result: Result<T, Failed>) -> Result<T, CUresult> {
    result.map_err(|failed| {
        log::debug!("{bytes} bytes at {at:#x} of a kept piece: {failed}");
        failed.code
    })
}

/// What a request would be kept as; `None` for what is not kept.
pub(crate) fn kind(property: &CUmemAllocationProp, bytes: usize) -> Option<MemoryKind> {
    let CUmemAllocationFlags { compressionType, gpuDirectRDMACapable, usage, .. } = property.allocFlags;
    let plain = compressionType == 0
        && usage == 0
        && property.requestedHandleTypes & !CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR == 0;
    let keeps = settings::load().torch_pieces == TorchPieces::Keep && plain && callers::is_torch_itself();
    keeps.then_some(MemoryKind {
        device: property.location.id,
        tier: Tier::Device,
        bytes: bytes as u64,
        handle_types: property.requestedHandleTypes,
        rdma: gpuDirectRDMACapable != 0,
    })
}

/// A token for memory that lies idle.
pub(crate) fn promise(kind: MemoryKind) -> Option<u64> {
    let token = shelf()?.promise(kind)?;
    if kind.tier == Tier::Device {
        let left = idle(kind.device, Tier::Device);
        keeps(kind.device, |kept| kept.least = kept.least.min(left));
    }
    Some(token)
}

/// A token for memory that was made.
pub(crate) fn made(kind: MemoryKind, handle: u64) -> u64 {
    USED.store(true, Relaxed);
    if kind.tier == Tier::Device {
        keeps(kind.device, |kept| kept.keep.made(kind.bytes, Instant::now()));
    }
    SHELF.lock().unwrap_or_else(PoisonError::into_inner).made(kind, handle)
}

fn keeps<T>(device: CUdevice, change: impl FnOnce(&mut KeptIdle) -> T) -> T {
    change(KEEPS.lock().unwrap_or_else(PoisonError::into_inner).entry(device).or_default())
}

/// `cuMemMap` of a token; `None` for other handles, for which the addresses are made free of what
/// lies there unused.
pub(crate) fn map(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> Option<CUresult> {
    let mut shelf = shelf()?;
    let mapped =
        if offset == 0 && flags == 0 { shelf.map(&DriverCalls, address, bytes as u64, handle) } else { None };
    if mapped.is_none() {
        // What the driver then says of the addresses is its answer.
        let _left = shelf.clear(&DriverCalls, address, bytes as u64);
    }
    drop(shelf);
    if REFUSED.take().is_some() {
        // All pieces of the second attempt are made.
        registry::all().for_each(give_leftovers_back);
    }
    mapped.map(code)
}

/// This thread was refused memory of a kind that is kept. The second time PyTorch has emptied its
/// cache without success and gives up: the pieces that it released go to other processes then, as
/// without the library.
pub(crate) fn refused() {
    match REFUSED.take() {
        None => REFUSED.set(Some(Instant::now())),
        Some(_) => registry::all().for_each(give_excess_back),
    }
}

/// `cuMemUnmap` of mappings of tokens.
pub(crate) fn unmap(address: u64, bytes: usize) -> Option<CUresult> {
    shelf()?.unmap(&DriverCalls, address, bytes as u64).map(code)
}

/// The driver has unmapped a range.
pub(crate) fn unmapped(address: u64, bytes: usize) {
    if let Some(mut shelf) = shelf() {
        shelf.unmapped(&DriverCalls, address, bytes as u64);
    }
}

/// `cuMemRelease` of a token. What is idle then beyond what is kept goes back to the driver, unless
/// PyTorch is about to ask for it.
pub(crate) fn release(token: u64) -> Option<CUresult> {
    let released = shelf()?.release(&DriverCalls, token).map(code);
    if released == Some(CUresult::SUCCESS) {
        if REFUSED.get().is_some_and(|refused| refused.elapsed() < EMPTYING) {
            look_later();
        } else {
            // `torch.cuda.empty_cache()`, say: the program makes room for others.
            registry::all().for_each(give_excess_back);
        }
    }
    released
}

/// Gives back what is idle beyond the stated amount.
fn give_excess_back(manager: &Manager<Device>) {
    let (device, stated) = (manager.gpu().ordinal(), manager.settings().keep_idle);
    for tier in TIERS {
        give_back(device, tier, idle(device, tier).saturating_sub(stated));
    }
}

/// The same for memory that a second attempt left idle on the device, except the amount that such
/// attempts used before. What lies on the host stays: the program is short of memory, and to pin as
/// much again takes a hundred times as long.
fn give_leftovers_back(manager: &Manager<Device>) {
    let (device, settings) = (manager.gpu().ordinal(), manager.settings());
    let idle = idle(device, Tier::Device);
    let excess = keeps(device, |kept| kept.keep.excess(idle, settings.keep_idle, settings.keep_most));
    let given = give_back(device, Tier::Device, excess);
    if given > 0 {
        keeps(device, |kept| kept.keep.gave(given, Instant::now()));
    }
    if idle.saturating_sub(given) > settings.keep_idle {
        look_later();
    }
}

/// What lies idle on devices is looked at again, also if the program makes no call any more.
fn look_later() {
    idle::look_at(Instant::now() + Keep::PERIOD, IdleKind::Pieces, || {
        registry::all().filter_map(give_unused_back).min()
    });
}

/// Gives back what was idle throughout a period, beyond the stated amount. Returns when to look
/// again, if more than that is left.
fn give_unused_back(manager: &Manager<Device>) -> Option<Instant> {
    let (device, stated, now) = (manager.gpu().ordinal(), manager.settings().keep_idle, Instant::now());
    let mut left = idle(device, Tier::Device);
    let unused = keeps(device, |kept| {
        let ended = kept.keep.has_ended_period(now);
        let unused = if ended { std::mem::replace(&mut kept.least, left).min(left) } else { 0 };
        kept.keep.unused(unused, stated);
        unused
    });
    left -= give_back(device, Tier::Device, unused.saturating_sub(stated)).min(left);
    keeps(device, |kept| {
        kept.least = kept.least.min(left);
        kept.keep.next_look().filter(|_| left > stated)
    })
}

/// `cuMemSetAccess` of mappings of tokens.
pub(crate) fn allow(address: u64, bytes: usize, wanted: &[CUmemAccessDesc]) -> Option<CUresult> {
    let mut shelf = shelf()?;
    let of_devices = wanted.iter().all(|entry| entry.location.type_ == CU_MEM_LOCATION_TYPE_DEVICE);
    let access: Access = wanted.iter().map(|entry| (entry.location.id, entry.flags)).collect();
    let allowed = if of_devices { shelf.allow(&DriverCalls, address, bytes as u64, &access) } else { None };
    if allowed.is_none() {
        shelf.forget_access(address, bytes as u64);
    }
    allowed.map(code)
}

/// The driver's handle of a token, for a question about it.
pub(crate) fn bound(token: u64) -> Option<u64> {
    shelf()?.bound(token)
}

/// The driver's handle of a token, for a use that may keep the memory alive.
pub(crate) fn share(token: u64) -> Option<u64> {
    shelf()?.share(token)
}

/// The driver was asked for the handle of what is mapped at an address.
pub(crate) fn share_at(address: u64) {
    if let Some(mut shelf) = shelf() {
        shelf.share_at(address);
    }
}

/// A range is about to be given up as addresses, or used for something else.
pub(crate) fn clear(address: u64, bytes: usize) {
    if let Some(mut shelf) = shelf() {
        let _left = shelf.clear(&DriverCalls, address, bytes as u64);
    }
}

/// Bytes on a device's tier that lie idle.
pub(crate) fn idle(device: CUdevice, tier: Tier) -> u64 {
    shelf().map_or(0, |shelf| shelf.idle_bytes(device, tier))
}

/// Gives idle bytes on a device's tier back to the driver; how many.
pub(crate) fn give_back(device: CUdevice, tier: Tier, bytes: u64) -> u64 {
    shelf().map_or(0, |mut shelf| shelf.give_back(&DriverCalls, device, tier, bytes))
}

/// The device's contexts are gone.
pub(crate) fn end_device(device: CUdevice) {
    if let Some(mut shelf) = shelf() {
        for tier in TIERS {
            shelf.give_back(&DriverCalls, device, tier, u64::MAX);
        }
        shelf.forget(device);
    }
}

fn code(result: Result<(), CUresult>) -> CUresult {
    result.err().unwrap_or(CUresult::SUCCESS)
}
