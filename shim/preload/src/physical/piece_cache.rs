//! The handle cache of this process, with the driver's calls: pieces that PyTorch's expandable
//! segments release and make again.
//!
//! Only with `WMSHIM_TORCH_PIECES=keep`, and only for PyTorch's allocator, which passes its handles
//! only to calls that are intercepted here. The lock is held across the driver's calls, because two
//! threads must not change mappings of one handle at once (see wm-memory's `mapping_lock`); none of
//! them waits for the GPU. How much stays idle is the pool's to say ([`HandlePool`]).

use std::cell::Cell;
use std::ops::Range;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use wm_abi::*;
use wm_driver::api::{Failed, Named};
use wm_driver::{Api, Device, Tier};
use wm_memory::{Disowned, HandlePool, Keep, Manager, PieceKind};

use super::handle_cache::adopted::{PlacedPiece, PlacedPieces};
use super::handle_cache::shared::SharedHandles;
use super::handle_cache::{Access, HandleCache, HeldPiece, Vmm};
use crate::idle::{self, IdleKind};
use crate::process::{callers, driver};
use crate::registry;
use crate::settings::{self, TorchPieces};

/// The handle cache, and whether there is anything in it.
#[derive(Debug)]
pub(crate) struct PieceCache {
    handles: SharedHandles<DriverCalls>,
    /// Was any handle cached? Until then no lock is taken.
    is_used: AtomicBool,
}

/// The cache of this process. It is a static of this layer, as the books are.
static CACHE: PieceCache = PieceCache::new();

/// The cached handles.
pub(crate) fn cache() -> &'static PieceCache {
    &CACHE
}

/// The time after a refusal in which memory that PyTorch gives up is for its second attempt. It
/// waits for its streams before, where kernels that use host memory may take seconds; a thread that
/// has mapped a piece since, or was refused again, is no longer at it.
const EMPTYING: Duration = Duration::from_secs(60);

thread_local! {
    /// When this thread was refused a piece, and has mapped none since.
    static REFUSED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The driver's calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DriverCalls;

impl Vmm for DriverCalls {
    fn pool<T>(&self, device: CUdevice, change: impl FnOnce(&mut HandlePool) -> T) -> Option<T> {
        registry::existing(device).map(|manager| manager.pool(change))
    }

    fn make(&self, kind: &PieceKind) -> Result<u64, CUresult> {
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
        log::debug!("{bytes} bytes at {at:#x} of a cached piece: {failed}");
        failed.code
    })
}

/// The kind of idle memory that may serve a request; `None` for a request that is not cached.
pub(crate) fn kind(property: &CUmemAllocationProp, bytes: usize) -> Option<PieceKind> {
    let CUmemAllocationFlags { compressionType, usage, .. } = property.allocFlags;
    let plain = compressionType == 0
        && usage == 0
        && property.requestedHandleTypes & !CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR == 0;
    let keeps = settings::load().torch_pieces == TorchPieces::Keep && plain && callers::is_torch_itself();
    keeps.then(|| kind_of(property, bytes))
}

/// The kind of a piece on its device that is plain otherwise.
pub(crate) fn kind_of(property: &CUmemAllocationProp, bytes: usize) -> PieceKind {
    PieceKind {
        device: property.location.id,
        tier: Tier::Device,
        bytes: bytes as u64,
        handle_types: property.requestedHandleTypes,
        rdma: property.allocFlags.gpuDirectRDMACapable != 0,
    }
}

impl PieceCache {
    pub(crate) const fn new() -> Self {
        Self { handles: SharedHandles::new(DriverCalls), is_used: AtomicBool::new(false) }
    }

    fn used(&self) -> Option<&SharedHandles<DriverCalls>> {
        self.is_used.load(Relaxed).then_some(&self.handles)
    }

    /// The cached handles, if there were any.
    pub(crate) fn handles(&self) -> Option<MutexGuard<'_, HandleCache<DriverCalls>>> {
        self.used().map(SharedHandles::lock)
    }

    /// The same for a use of a piece, which is not in exchange then.
    pub(crate) fn handles_for(&self, alias: u64) -> Option<MutexGuard<'_, HandleCache<DriverCalls>>> {
        self.used().map(|handles| handles.lock_for(alias))
    }

    /// The same for a use of a range.
    pub(crate) fn handles_in(
        &self,
        address: u64,
        bytes: u64,
    ) -> Option<MutexGuard<'_, HandleCache<DriverCalls>>> {
        self.used().map(|handles| handles.lock_in(address, bytes))
    }

    /// Other holders may use the memory in a range: it serves no later piece.
    pub(crate) fn share_range(&self, address: u64, bytes: u64) {
        if let Some(mut handles) = self.handles_in(address, bytes) {
            handles.share_range(address, bytes);
        }
    }

    /// A piece becomes other memory ([`SharedHandles::exchange`]).
    pub(crate) fn exchange(&self, alias: u64, seen: &HeldPiece, handle: u64, access: &[Access]) -> bool {
        self.used().is_some_and(|handles| handles.exchange(alias, seen, handle, access))
    }

    /// An alias for memory that was made. `serves_later`: another piece gets it when the program
    /// has given it up. `is_movable`: it is made as its device's manager makes memory.
    pub(crate) fn made(&self, kind: PieceKind, handle: u64, serves_later: bool, is_movable: bool) -> u64 {
        self.is_used.store(true, Relaxed);
        let mut handles = self.handles.lock();
        let alias = if serves_later { handles.made(kind, handle) } else { handles.lend(kind, handle) };
        if is_movable {
            handles.let_move(alias);
        }
        alias
    }

    /// `adopt` is asked for each piece in a range that the manager could move; `true`: it does from
    /// now on. It makes no driver call. Returns those that are adopted.
    pub(crate) fn adopt_in(
        &self,
        address: u64,
        bytes: u64,
        adopt: impl Fn(&PlacedPiece) -> bool,
    ) -> PlacedPieces {
        let Some(mut handles) = self.handles_in(address, bytes) else { return PlacedPieces::new() };
        let mut pieces = handles.adoptable(address, bytes);
        pieces.retain(|piece| adopt(piece));
        pieces.iter().for_each(|piece| handles.adopted(piece));
        pieces
    }

    /// Before memory of adopted pieces moves: they are mapped nowhere but in this range. The calls
    /// that adopt pieces are not under way then, so this holds until the gate opens.
    pub(crate) fn make_alone(&self, range: &Range<u64>) -> Result<(), CUresult> {
        let handles = self.used().map(SharedHandles::lock);
        handles.map_or(Ok(()), |mut handles| handles.make_alone(range.start, range.end - range.start))
    }

    /// Adopted pieces that a range touches; with `granted`, those that lack one of these rights.
    pub(crate) fn adopted_in(&self, address: u64, bytes: u64, granted: Option<&Access>) -> PlacedPieces {
        let handles = self.handles_in(address, bytes);
        handles.map(|handles| handles.adopted_in(address, bytes, granted)).unwrap_or_default()
    }

    /// As [`SharedHandles::disown`].
    pub(crate) fn disown(&self, alias: u64, leave: impl FnOnce(u64) -> Option<Disowned>) {
        if let Some(handles) = self.used() {
            handles.disown(alias, leave);
        }
    }

    /// `cuMemMap` of an alias; `None` for other handles, for which unused mappings are removed from
    /// the addresses.
    pub(crate) fn map(
        &self,
        address: u64,
        bytes: usize,
        offset: usize,
        handle: u64,
        flags: u64,
    ) -> Option<CUresult> {
        let mut handles = self.used()?.lock_for_in(handle, address, bytes as u64);
        let is_whole = offset == 0 && flags == 0;
        let mapped = is_whole.then(|| handles.map(address, bytes as u64, handle)).flatten();
        if mapped.is_none() {
            // The driver's answer about the addresses is the answer.
            let _left = handles.clear(address, bytes as u64);
        }
        drop(handles);
        if REFUSED.take().is_some() {
            // All pieces of the second attempt are made.
            registry::all().for_each(|manager| self.give_leftovers_back(manager));
        }
        mapped.map(CUresult::from)
    }

    /// This thread was refused memory of a kind that is cached. The second time PyTorch has emptied
    /// its cache without success and gives up: the pieces that it released go to other processes
    /// then, as without the library.
    pub(crate) fn refused(&self) {
        match REFUSED.take() {
            None => REFUSED.set(Some(Instant::now())),
            Some(_) => registry::all().for_each(|manager| self.give_excess_back(manager)),
        }
    }

    /// `cuMemRelease` of an alias. Idle memory beyond the stated amount goes back to the driver
    /// then, unless PyTorch is about to ask for it.
    pub(crate) fn release(&self, alias: u64) -> Option<CUresult> {
        let released = self.handles_for(alias)?.release(alias).map(CUresult::from);
        if released == Some(CUresult::SUCCESS) {
            if REFUSED.get().is_some_and(|refused| refused.elapsed() < EMPTYING) {
                look_later();
            } else {
                // `torch.cuda.empty_cache()`, say: the program makes room for others.
                registry::all().for_each(|manager| self.give_excess_back(manager));
            }
        }
        released
    }

    /// Gives back the idle handles beyond the stated amount.
    fn give_excess_back(&self, manager: &Manager<Device>) {
        for tier in [Tier::Device, Tier::Host] {
            self.give_back(manager, tier, manager.excess_of_pieces(tier, false));
        }
    }

    /// The same for memory that a second attempt left idle on the device, except the amount that
    /// such attempts used before. Idle memory of the host stays: the program is short of memory,
    /// and to pin as much again takes a hundred times as long.
    fn give_leftovers_back(&self, manager: &Manager<Device>) {
        let given = self.give_back(manager, Tier::Device, manager.excess_of_pieces(Tier::Device, true));
        if given > 0 {
            manager.gave_pieces_back(given);
        }
        if manager.excess_of_pieces(Tier::Device, false) > 0 {
            look_later();
        }
    }

    /// `cuMemSetAccess` of mappings of aliases.
    pub(crate) fn allow(&self, address: u64, bytes: usize, wanted: &[CUmemAccessDesc]) -> Option<CUresult> {
        let mut handles = self.handles_in(address, bytes as u64)?;
        let of_devices = wanted.iter().all(|entry| entry.location.type_ == CU_MEM_LOCATION_TYPE_DEVICE);
        let access: Access = wanted.iter().map(|entry| (entry.location.id, entry.flags)).collect();
        let allowed = if of_devices { handles.allow(address, bytes as u64, &access) } else { None };
        if allowed.is_none() {
            handles.forget_access(address, bytes as u64);
        }
        allowed.map(CUresult::from)
    }

    /// Gives idle bytes on a device's tier back to the driver; how many.
    pub(crate) fn give_back(&self, manager: &Manager<Device>, tier: Tier, bytes: u64) -> u64 {
        let device = manager.gpu().ordinal();
        self.handles().map_or(0, |mut handles| handles.give_back(device, tier, bytes))
    }

    /// Idle memory of the host as a device's manager makes it, of so many bytes, is the manager's
    /// from now on. To map it elsewhere takes a hundredth of the time in which as much is made.
    pub(crate) fn take_idle(&self, device: CUdevice, bytes: u64) -> Option<u64> {
        self.handles()?.take_idle(device, bytes)
    }

    /// Host memory for so many bytes is about to be made. If the host has too little beside the
    /// memory that is idle here, idle memory goes back.
    pub(crate) fn make_host_room(&self, manager: &Manager<Device>, bytes: u64) {
        if manager.pool(|pool| pool.idle(Tier::Host)) > 0 {
            self.give_back(manager, Tier::Host, manager.lacks_on_host(bytes));
        }
    }
}

/// Idle memory of devices is looked at again, also if the program makes no call any more.
fn look_later() {
    idle::look_at(Instant::now() + Keep::PERIOD, IdleKind::Pieces, || {
        registry::all().filter_map(give_back_unused).min()
    });
}

fn give_back_unused(manager: &Manager<Device>) -> Option<Instant> {
    manager.give_back_unused(|bytes| {
        cache().give_back(manager, Tier::Device, bytes);
    })
}
